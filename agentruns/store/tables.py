"""Name the tables of the rows, for statements that speak Core."""

from __future__ import annotations

from typing import Final, cast

from sqlalchemy import Table

from agentruns.orm.admissions import AgentAdmissionRow
from agentruns.orm.attempts import NodeAttemptRow
from agentruns.orm.base import Base
from agentruns.orm.checkpoints import RunCheckpointRow
from agentruns.orm.graphs import GraphDefinitionRow
from agentruns.orm.models import ModelInvocationRevisionRow, ModelInvocationRow
from agentruns.orm.quarantines import RunQuarantineReleaseRow, RunQuarantineRow
from agentruns.orm.results import NodeResultRow
from agentruns.orm.runs import RunEventRow, RunOutcomeRow, RunRow
from agentruns.orm.scheduling import (
    SchedulerFairnessReservationRow,
    SchedulerFairnessShardRow,
    TenantLimitRow,
    TenantSlotRow,
)
from agentruns.orm.submissions import AgentSubmissionKeyRow
from agentruns.orm.tools import ToolInvocationRevisionRow, ToolInvocationRow
from agentruns.orm.waits import RunWaitRow


def _table(row: type[Base]) -> Table:
    return cast("Table", row.__table__)


runs: Final = _table(RunRow)
events: Final = _table(RunEventRow)
outcomes: Final = _table(RunOutcomeRow)
checkpoints: Final = _table(RunCheckpointRow)
results: Final = _table(NodeResultRow)
attempts: Final = _table(NodeAttemptRow)
waits: Final = _table(RunWaitRow)
quarantines: Final = _table(RunQuarantineRow)
quarantine_releases: Final = _table(RunQuarantineReleaseRow)
graphs: Final = _table(GraphDefinitionRow)
admissions: Final = _table(AgentAdmissionRow)
keys: Final = _table(AgentSubmissionKeyRow)
model_calls: Final = _table(ModelInvocationRow)
model_call_changes: Final = _table(ModelInvocationRevisionRow)
tool_calls: Final = _table(ToolInvocationRow)
tool_call_changes: Final = _table(ToolInvocationRevisionRow)
shards: Final = _table(SchedulerFairnessShardRow)
reservations: Final = _table(SchedulerFairnessReservationRow)
tenant_limits: Final = _table(TenantLimitRow)
tenant_slots: Final = _table(TenantSlotRow)
