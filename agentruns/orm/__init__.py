"""What is stored: one declarative row for each table, one module for each family, in the order of the revisions."""

from __future__ import annotations

from agentruns.orm.admissions import AgentAdmissionRow
from agentruns.orm.attempts import NodeAttemptRow
from agentruns.orm.base import SCHEMA_TOKEN, Base
from agentruns.orm.checkpoints import RunCheckpointRow
from agentruns.orm.graphs import GraphDefinitionRow
from agentruns.orm.models import ModelInvocationRevisionRow, ModelInvocationRow
from agentruns.orm.outbox import OutboxAttemptRow, OutboxDeliveryRow, OutboxDestinationRow, OutboxResultRow
from agentruns.orm.quarantines import RunQuarantineReleaseRow, RunQuarantineRow
from agentruns.orm.results import NodeResultRow
from agentruns.orm.runs import AppliedRevisionRow, RunEventRow, RunOutcomeRow, RunRow
from agentruns.orm.scheduling import (
    SchedulerFairnessReservationRow,
    SchedulerFairnessShardRow,
    TenantLimitRow,
    TenantSlotRow,
)
from agentruns.orm.submissions import AgentSubmissionKeyRow, RetentionReceiptRow
from agentruns.orm.tools import ToolInvocationRevisionRow, ToolInvocationRow
from agentruns.orm.waits import RunWaitRow

__all__ = [
    "SCHEMA_TOKEN",
    "AgentAdmissionRow",
    "AgentSubmissionKeyRow",
    "AppliedRevisionRow",
    "Base",
    "GraphDefinitionRow",
    "ModelInvocationRevisionRow",
    "ModelInvocationRow",
    "NodeAttemptRow",
    "NodeResultRow",
    "OutboxAttemptRow",
    "OutboxDeliveryRow",
    "OutboxDestinationRow",
    "OutboxResultRow",
    "RetentionReceiptRow",
    "RunCheckpointRow",
    "RunEventRow",
    "RunOutcomeRow",
    "RunQuarantineReleaseRow",
    "RunQuarantineRow",
    "RunRow",
    "RunWaitRow",
    "SchedulerFairnessReservationRow",
    "SchedulerFairnessShardRow",
    "TenantLimitRow",
    "TenantSlotRow",
    "ToolInvocationRevisionRow",
    "ToolInvocationRow",
]
