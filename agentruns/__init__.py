"""Durable agent runs for SQLAlchemy applications: submit once, drive on evidence, read what was verified.

A name is imported from its module when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentruns.domain.agent import AgentDescriptor as AgentDescriptor
    from agentruns.domain.authority import AgentAdmissionAuthority as AgentAdmissionAuthority
    from agentruns.domain.authority import AgentAdmissionBudgetLayer as AgentAdmissionBudgetLayer
    from agentruns.domain.bounded_json import BoundedJson as BoundedJson
    from agentruns.domain.budget_limits import BudgetLimits as BudgetLimits
    from agentruns.domain.explanation.explanation import ExplanationReason as ExplanationReason
    from agentruns.domain.explanation.explanation import ReasonCode as ReasonCode
    from agentruns.domain.explanation.explanation import RunExplanation as RunExplanation
    from agentruns.domain.explanation.explanation import RunVerdict as RunVerdict
    from agentruns.domain.failure import Failure as Failure
    from agentruns.domain.failure import FailureCategory as FailureCategory
    from agentruns.domain.fairness import TenantFairnessPolicy as TenantFairnessPolicy
    from agentruns.domain.graph.definition import CompiledGraph as CompiledGraph
    from agentruns.domain.graph.executable import GraphNodeExecutor as GraphNodeExecutor
    from agentruns.domain.graph.executable import GraphNodeScheduling as GraphNodeScheduling
    from agentruns.domain.graph.reducers import GraphReducer as GraphReducer
    from agentruns.domain.graph.reducers import MergeReducer as MergeReducer
    from agentruns.domain.graph.reducers import NodeUpdate as NodeUpdate
    from agentruns.domain.graph.reducers import ReplaceReducer as ReplaceReducer
    from agentruns.domain.graph.returns import Continue as Continue
    from agentruns.domain.graph.returns import Finish as Finish
    from agentruns.domain.graph.returns import Route as Route
    from agentruns.domain.graph.returns import Suspend as Suspend
    from agentruns.domain.identity import CapabilityIdentity as CapabilityIdentity
    from agentruns.domain.identity import CapabilityReference as CapabilityReference
    from agentruns.domain.identity import GraphReference as GraphReference
    from agentruns.domain.identity import PrincipalIdentity as PrincipalIdentity
    from agentruns.domain.identity import SchemaReference as SchemaReference
    from agentruns.domain.ids import AttemptId as AttemptId
    from agentruns.domain.ids import EventId as EventId
    from agentruns.domain.ids import FailureId as FailureId
    from agentruns.domain.ids import QuarantineId as QuarantineId
    from agentruns.domain.ids import RunId as RunId
    from agentruns.domain.ids import WaitId as WaitId
    from agentruns.domain.numbers import DurationMillis as DurationMillis
    from agentruns.domain.operator_authority import OperatorAuthority as OperatorAuthority
    from agentruns.domain.outcome import AgentRunTerminalOutcome as AgentRunTerminalOutcome
    from agentruns.domain.outcome import CancelledOutcome as CancelledOutcome
    from agentruns.domain.outcome import FailedOutcome as FailedOutcome
    from agentruns.domain.outcome import SucceededOutcome as SucceededOutcome
    from agentruns.domain.payload import JournalPayload as JournalPayload
    from agentruns.domain.request import AgentRequest as AgentRequest
    from agentruns.domain.result import AgentResult as AgentResult
    from agentruns.domain.retry_advice import NeverRetry as NeverRetry
    from agentruns.domain.retry_advice import SafeAfter as SafeAfter
    from agentruns.domain.run_ids import AgentRunIds as AgentRunIds
    from agentruns.domain.scalars import FailureCode as FailureCode
    from agentruns.domain.scalars import FailureOrigin as FailureOrigin
    from agentruns.domain.scalars import JournalEventKind as JournalEventKind
    from agentruns.domain.scalars import ShardId as ShardId
    from agentruns.domain.scalars import SubjectId as SubjectId
    from agentruns.domain.scalars import TenantId as TenantId
    from agentruns.domain.schema import JsonSchemaRegistry as JsonSchemaRegistry
    from agentruns.domain.schema import JsonSchemaRegistryBuilder as JsonSchemaRegistryBuilder
    from agentruns.domain.scopes import ScopeSet as ScopeSet
    from agentruns.domain.snapshot import AgentRunSnapshot as AgentRunSnapshot
    from agentruns.domain.snapshot import RunObservation as RunObservation
    from agentruns.domain.status import RunStatus as RunStatus
    from agentruns.domain.submission import DurableAgentAdmissionRequest as DurableAgentAdmissionRequest
    from agentruns.domain.submission import GraphState as GraphState
    from agentruns.domain.submission import MutationOutcome as MutationOutcome
    from agentruns.domain.submission_key import AgentSubmissionKey as AgentSubmissionKey
    from agentruns.domain.timestamps import Timestamp as Timestamp
    from agentruns.domain.uris import IssuerId as IssuerId
    from agentruns.domain.usage import BudgetUsage as BudgetUsage
    from agentruns.domain.waits import InterruptRegistration as InterruptRegistration
    from agentruns.domain.waits import NodeWait as NodeWait
    from agentruns.domain.waits import TimerRegistration as TimerRegistration
    from agentruns.domain.waits import WaitResolver as WaitResolver
    from agentruns.domain.wire import from_json as from_json
    from agentruns.domain.wire import to_json as to_json
    from agentruns.errors import AgentAdmissionConflictError as AgentAdmissionConflictError
    from agentruns.errors import AgentAdmissionRejectedError as AgentAdmissionRejectedError
    from agentruns.errors import AgentRunsError as AgentRunsError
    from agentruns.errors import AgentSubmissionConflictError as AgentSubmissionConflictError
    from agentruns.errors import AgentSubmissionNotFoundError as AgentSubmissionNotFoundError
    from agentruns.errors import CancellationConflictError as CancellationConflictError
    from agentruns.errors import CommitOutcomeUnknownError as CommitOutcomeUnknownError
    from agentruns.errors import ConflictError as ConflictError
    from agentruns.errors import ContentionError as ContentionError
    from agentruns.errors import CorruptDataError as CorruptDataError
    from agentruns.errors import DatabaseClockRegressionError as DatabaseClockRegressionError
    from agentruns.errors import DefinitionError as DefinitionError
    from agentruns.errors import DeploymentError as DeploymentError
    from agentruns.errors import ExecutableGraphUnavailableError as ExecutableGraphUnavailableError
    from agentruns.errors import IdConflictError as IdConflictError
    from agentruns.errors import InvalidOptionError as InvalidOptionError
    from agentruns.errors import InvalidValueError as InvalidValueError
    from agentruns.errors import InvariantError as InvariantError
    from agentruns.errors import InvocationFailedError as InvocationFailedError
    from agentruns.errors import LeaseLostError as LeaseLostError
    from agentruns.errors import NodeFailedError as NodeFailedError
    from agentruns.errors import NotFoundError as NotFoundError
    from agentruns.errors import NotYetAvailableError as NotYetAvailableError
    from agentruns.errors import ReducerRejectedError as ReducerRejectedError
    from agentruns.errors import RefusedError as RefusedError
    from agentruns.errors import ResolverNotPermittedError as ResolverNotPermittedError
    from agentruns.errors import RunNotFoundError as RunNotFoundError
    from agentruns.errors import RunNotRunnableError as RunNotRunnableError
    from agentruns.errors import RunQuarantinedError as RunQuarantinedError
    from agentruns.errors import SchemaRejectedError as SchemaRejectedError
    from agentruns.errors import SchemaUnavailableError as SchemaUnavailableError
    from agentruns.errors import SchemaVerificationError as SchemaVerificationError
    from agentruns.errors import StaleHeadError as StaleHeadError
    from agentruns.errors import StoreError as StoreError
    from agentruns.errors import StoreUnavailableError as StoreUnavailableError
    from agentruns.errors import UnitOfWorkError as UnitOfWorkError
    from agentruns.errors import WaitAlreadySettledError as WaitAlreadySettledError
    from agentruns.operations.audit import AuditProgress as AuditProgress
    from agentruns.operations.audit import AuditSample as AuditSample
    from agentruns.operations.audit import AuditScope as AuditScope
    from agentruns.operations.audit import audit_runs as audit_runs
    from agentruns.operations.embedded import EmbeddedServer as EmbeddedServer
    from agentruns.operations.quarantines import ReleasedQuarantine as ReleasedQuarantine
    from agentruns.operations.quarantines import release_quarantine as release_quarantine
    from agentruns.operations.reservations import prune_reservations as prune_reservations
    from agentruns.operations.retention import HeldRun as HeldRun
    from agentruns.operations.retention import RetentionBatch as RetentionBatch
    from agentruns.operations.retention import RetentionPlan as RetentionPlan
    from agentruns.operations.retention import RetentionPolicy as RetentionPolicy
    from agentruns.operations.retention import RetentionReceipt as RetentionReceipt
    from agentruns.operations.retention import plan_retention as plan_retention
    from agentruns.operations.retention import remove_runs as remove_runs
    from agentruns.operations.retention import retention_receipts as retention_receipts
    from agentruns.operations.verification import SchemaReport as SchemaReport
    from agentruns.operations.verification import verify_schema as verify_schema
    from agentruns.orm.runs import RunRow as RunRow
    from agentruns.runtime.agent_loop import AgentLoopOutcome as AgentLoopOutcome
    from agentruns.runtime.agent_loop import DurableAgentLoop as DurableAgentLoop
    from agentruns.runtime.context import GraphNodeContext as GraphNodeContext
    from agentruns.runtime.control import AgentRunMutation as AgentRunMutation
    from agentruns.runtime.deployment import Deployment as Deployment
    from agentruns.runtime.deployment_open import OpenDeployment as OpenDeployment
    from agentruns.runtime.discovery import DurableRunDiscovery as DurableRunDiscovery
    from agentruns.runtime.driven_runs import DrivenRun as DrivenRun
    from agentruns.runtime.driver.driver import DurableGraphDriver as DurableGraphDriver
    from agentruns.runtime.driver.options import DurableGraphDriverOptions as DurableGraphDriverOptions
    from agentruns.runtime.driver.options import GraphReplayLimits as GraphReplayLimits
    from agentruns.runtime.driver.report import GraphDriveReport as GraphDriveReport
    from agentruns.runtime.engine import install_failover_handler as install_failover_handler
    from agentruns.runtime.engine import is_transient as is_transient
    from agentruns.runtime.fair_shard import FairShard as FairShard
    from agentruns.runtime.graph_builder import GraphBuilder as GraphBuilder
    from agentruns.runtime.graph_bundle import GraphBundle as GraphBundle
    from agentruns.runtime.health_endpoint import HealthEndpoint as HealthEndpoint
    from agentruns.runtime.joined import JoinedAgentRuns as JoinedAgentRuns
    from agentruns.runtime.lifecycle import DurableGraphLifecycle as DurableGraphLifecycle
    from agentruns.runtime.node_retry import NodeRetry as NodeRetry
    from agentruns.runtime.registry import ExecutableGraphRegistry as ExecutableGraphRegistry
    from agentruns.runtime.registry import ExecutableGraphRegistryBuilder as ExecutableGraphRegistryBuilder
    from agentruns.runtime.replay import RunReader as RunReader
    from agentruns.runtime.runs import DurableAgentRuns as DurableAgentRuns
    from agentruns.runtime.settled_waits import SettledRunWait as SettledRunWait
    from agentruns.runtime.shutdown import ShutdownSignal as ShutdownSignal
    from agentruns.runtime.standard_schemas import (
        register_standard_agent_admission_event_schema as register_standard_agent_admission_event_schema,
    )
    from agentruns.runtime.standard_schemas import (
        register_standard_agent_cancellation_event_schema as register_standard_agent_cancellation_event_schema,
    )
    from agentruns.runtime.standard_schemas import (
        register_standard_graph_driver_event_schema as register_standard_graph_driver_event_schema,
    )
    from agentruns.runtime.standard_schemas import (
        register_standard_graph_lifecycle_event_schema as register_standard_graph_lifecycle_event_schema,
    )
    from agentruns.runtime.standard_schemas import (
        register_standard_invocation_event_schema as register_standard_invocation_event_schema,
    )
    from agentruns.runtime.standard_schemas import register_standard_schemas as register_standard_schemas
    from agentruns.runtime.store import AgentRunStore as AgentRunStore
    from agentruns.runtime.submission import AgentRunAdmission as AgentRunAdmission
    from agentruns.runtime.supervisor import DurableRunSupervisor as DurableRunSupervisor
    from agentruns.runtime.supervisor import SupervisionCursor as SupervisionCursor
    from agentruns.runtime.supervisor import SupervisionError as SupervisionError
    from agentruns.runtime.supervisor import SupervisionTick as SupervisionTick
    from agentruns.runtime.waits import DurableRunWaits as DurableRunWaits
    from agentruns.runtime.work_report import WorkReport as WorkReport
    from agentruns.runtime.worker import AgentWorker as AgentWorker
    from agentruns.runtime.worker_events import DriveEnded as DriveEnded
    from agentruns.runtime.worker_events import HealthChanged as HealthChanged
    from agentruns.runtime.worker_events import RunClaimed as RunClaimed
    from agentruns.runtime.worker_events import RunsSupervised as RunsSupervised
    from agentruns.runtime.worker_events import WorkerDraining as WorkerDraining
    from agentruns.runtime.worker_events import WorkerEvent as WorkerEvent
    from agentruns.runtime.worker_events import WorkerStarted as WorkerStarted
    from agentruns.runtime.worker_events import WorkerStopped as WorkerStopped
    from agentruns.runtime.worker_health import WorkerHealth as WorkerHealth
    from agentruns.runtime.worker_health import WorkerStatus as WorkerStatus
    from agentruns.runtime.worker_options import AgentWorkerOptions as AgentWorkerOptions
    from agentruns.store.discovery import ReadyCursor as ReadyCursor
    from agentruns.store.discovery import ReadyPage as ReadyPage
    from agentruns.store.discovery import ReadyRun as ReadyRun
    from agentruns.store.options import StoreOptions as StoreOptions

_PUBLIC: Final = {
    # the short way in, and graphs
    "runtime.deployment": "Deployment",
    "runtime.deployment_open": "OpenDeployment",
    "runtime.graph_builder": "GraphBuilder",
    "runtime.graph_bundle": "GraphBundle",
    "runtime.node_retry": "NodeRetry",
    "runtime.context": "GraphNodeContext",
    "domain.graph.returns": "Continue Finish Route Suspend",
    "domain.waits": "InterruptRegistration NodeWait TimerRegistration WaitResolver",
    "domain.graph.reducers": "GraphReducer MergeReducer NodeUpdate ReplaceReducer",
    "domain.graph.definition": "CompiledGraph",
    "domain.graph.executable": "GraphNodeExecutor GraphNodeScheduling",
    # submit and read
    "domain.submission_key": "AgentSubmissionKey",
    "domain.submission": "DurableAgentAdmissionRequest GraphState MutationOutcome",
    "domain.run_ids": "AgentRunIds",
    "domain.numbers": "DurationMillis",
    "domain.ids": "AttemptId EventId FailureId QuarantineId RunId WaitId",
    "domain.scalars": "FailureCode FailureOrigin JournalEventKind ShardId SubjectId TenantId",
    "domain.timestamps": "Timestamp",
    "domain.uris": "IssuerId",
    "domain.wire": "from_json to_json",
    "domain.bounded_json": "BoundedJson",
    "domain.payload": "JournalPayload",
    "domain.scopes": "ScopeSet",
    "domain.agent": "AgentDescriptor",
    "domain.request": "AgentRequest",
    "domain.authority": "AgentAdmissionAuthority AgentAdmissionBudgetLayer",
    "domain.budget_limits": "BudgetLimits",
    "domain.usage": "BudgetUsage",
    "domain.identity": "CapabilityIdentity CapabilityReference GraphReference PrincipalIdentity SchemaReference",
    "domain.snapshot": "AgentRunSnapshot RunObservation",
    "domain.status": "RunStatus",
    "domain.explanation.explanation": "ExplanationReason ReasonCode RunExplanation RunVerdict",
    "domain.outcome": "AgentRunTerminalOutcome CancelledOutcome FailedOutcome SucceededOutcome",
    "domain.result": "AgentResult",
    "domain.failure": "Failure FailureCategory",
    "domain.operator_authority": "OperatorAuthority",
    "domain.retry_advice": "NeverRetry SafeAfter",
    "runtime.runs": "DurableAgentRuns",
    "runtime.control": "AgentRunMutation",
    "runtime.joined": "JoinedAgentRuns",
    "runtime.submission": "AgentRunAdmission",
    # wait
    "runtime.waits": "DurableRunWaits",
    "runtime.settled_waits": "SettledRunWait",
    "runtime.supervisor": "DurableRunSupervisor SupervisionCursor SupervisionError SupervisionTick",
    # drive
    "store.options": "StoreOptions",
    "runtime.store": "AgentRunStore",
    "runtime.standard_schemas": (
        "register_standard_schemas register_standard_agent_admission_event_schema "
        "register_standard_agent_cancellation_event_schema register_standard_graph_driver_event_schema "
        "register_standard_graph_lifecycle_event_schema register_standard_invocation_event_schema"
    ),
    "domain.schema": "JsonSchemaRegistry JsonSchemaRegistryBuilder",
    "runtime.registry": "ExecutableGraphRegistry ExecutableGraphRegistryBuilder",
    "runtime.driver.driver": "DurableGraphDriver",
    "runtime.driver.options": "DurableGraphDriverOptions GraphReplayLimits",
    "runtime.driver.report": "GraphDriveReport",
    "runtime.lifecycle": "DurableGraphLifecycle",
    "runtime.agent_loop": "AgentLoopOutcome DurableAgentLoop",
    "runtime.worker": "AgentWorker",
    "runtime.worker_options": "AgentWorkerOptions",
    "runtime.worker_events": (
        "DriveEnded HealthChanged RunClaimed RunsSupervised WorkerDraining WorkerEvent WorkerStarted WorkerStopped"
    ),
    "runtime.worker_health": "WorkerHealth WorkerStatus",
    "runtime.health_endpoint": "HealthEndpoint",
    "runtime.driven_runs": "DrivenRun",
    "runtime.work_report": "WorkReport",
    "runtime.discovery": "DurableRunDiscovery",
    "store.discovery": "ReadyCursor ReadyPage ReadyRun",
    "runtime.shutdown": "ShutdownSignal",
    "runtime.fair_shard": "FairShard",
    "domain.fairness": "TenantFairnessPolicy",
    "runtime.replay": "RunReader",
    # live in an application's database
    "orm.runs": "RunRow",
    "runtime.engine": "install_failover_handler is_transient",
    # operate
    "operations.audit": "AuditProgress AuditSample AuditScope audit_runs",
    "operations.embedded": "EmbeddedServer",
    "operations.quarantines": "ReleasedQuarantine release_quarantine",
    "operations.reservations": "prune_reservations",
    "operations.retention": (
        "HeldRun RetentionBatch RetentionPlan RetentionPolicy RetentionReceipt plan_retention remove_runs "
        "retention_receipts"
    ),
    "operations.verification": "SchemaReport verify_schema",
    # errors: the families, and what a caller tells apart; agentruns.errors has all
    "errors": (
        "AgentAdmissionConflictError AgentAdmissionRejectedError AgentRunsError AgentSubmissionConflictError "
        "AgentSubmissionNotFoundError CancellationConflictError CommitOutcomeUnknownError ConflictError "
        "ContentionError CorruptDataError DatabaseClockRegressionError DefinitionError DeploymentError "
        "ExecutableGraphUnavailableError IdConflictError InvalidOptionError InvalidValueError InvariantError "
        "InvocationFailedError LeaseLostError NodeFailedError NotFoundError NotYetAvailableError "
        "ReducerRejectedError RefusedError ResolverNotPermittedError RunNotFoundError RunNotRunnableError "
        "RunQuarantinedError SchemaRejectedError SchemaUnavailableError SchemaVerificationError "
        "StaleHeadError StoreError StoreUnavailableError UnitOfWorkError WaitAlreadySettledError"
    ),
}

# An application that configures no logging is told nothing; one that does hears the loggers below this name.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES: Final = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - a test compares it with what type checkers see

if not TYPE_CHECKING:  # type checkers see the imports above, and refuse every other name

    def __getattr__(name: str) -> object:
        """Import a public name from its module."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
