"""Durable agent runs for SQLAlchemy applications: submit once, drive on evidence, read what was verified.

A name is imported from its module when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agentruns.domain.agent import AgentDescriptor as AgentDescriptor
    from agentruns.domain.authority import AgentAdmissionAuthority as AgentAdmissionAuthority
    from agentruns.domain.authority import AgentAdmissionBudgetLayer as AgentAdmissionBudgetLayer
    from agentruns.domain.budget_limits import BudgetLimits as BudgetLimits
    from agentruns.domain.failure import Failure as Failure
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
    from agentruns.domain.ids import RunId as RunId
    from agentruns.domain.outcome import AgentRunTerminalOutcome as AgentRunTerminalOutcome
    from agentruns.domain.outcome import CancelledOutcome as CancelledOutcome
    from agentruns.domain.outcome import FailedOutcome as FailedOutcome
    from agentruns.domain.outcome import SucceededOutcome as SucceededOutcome
    from agentruns.domain.request import AgentRequest as AgentRequest
    from agentruns.domain.result import AgentResult as AgentResult
    from agentruns.domain.run_ids import AgentRunIds as AgentRunIds
    from agentruns.domain.scalars import TenantId as TenantId
    from agentruns.domain.schema import JsonSchemaRegistry as JsonSchemaRegistry
    from agentruns.domain.schema import JsonSchemaRegistryBuilder as JsonSchemaRegistryBuilder
    from agentruns.domain.snapshot import AgentRunSnapshot as AgentRunSnapshot
    from agentruns.domain.snapshot import RunObservation as RunObservation
    from agentruns.domain.status import RunStatus as RunStatus
    from agentruns.domain.submission import DurableAgentAdmissionRequest as DurableAgentAdmissionRequest
    from agentruns.domain.submission import GraphState as GraphState
    from agentruns.domain.submission import MutationOutcome as MutationOutcome
    from agentruns.domain.submission_key import AgentSubmissionKey as AgentSubmissionKey
    from agentruns.domain.usage import BudgetUsage as BudgetUsage
    from agentruns.domain.waits import NodeWait as NodeWait
    from agentruns.errors import AgentAdmissionConflictError as AgentAdmissionConflictError
    from agentruns.errors import AgentAdmissionRejectedError as AgentAdmissionRejectedError
    from agentruns.errors import AgentRunsError as AgentRunsError
    from agentruns.errors import AgentSubmissionConflictError as AgentSubmissionConflictError
    from agentruns.errors import AgentSubmissionNotFoundError as AgentSubmissionNotFoundError
    from agentruns.errors import ConflictError as ConflictError
    from agentruns.errors import CorruptDataError as CorruptDataError
    from agentruns.errors import DeploymentError as DeploymentError
    from agentruns.errors import InvalidValueError as InvalidValueError
    from agentruns.errors import InvariantError as InvariantError
    from agentruns.errors import InvocationFailedError as InvocationFailedError
    from agentruns.errors import NodeFailedError as NodeFailedError
    from agentruns.errors import NotFoundError as NotFoundError
    from agentruns.errors import RefusedError as RefusedError
    from agentruns.errors import RunNotFoundError as RunNotFoundError
    from agentruns.errors import SchemaRejectedError as SchemaRejectedError
    from agentruns.errors import SchemaVerificationError as SchemaVerificationError
    from agentruns.errors import StoreError as StoreError
    from agentruns.errors import UnitOfWorkError as UnitOfWorkError
    from agentruns.operations.embedded import EmbeddedServer as EmbeddedServer
    from agentruns.operations.verification import verify_schema as verify_schema
    from agentruns.runtime.agent_loop import DurableAgentLoop as DurableAgentLoop
    from agentruns.runtime.context import GraphNodeContext as GraphNodeContext
    from agentruns.runtime.deployment import Deployment as Deployment
    from agentruns.runtime.deployment_open import OpenDeployment as OpenDeployment
    from agentruns.runtime.driver.driver import DurableGraphDriver as DurableGraphDriver
    from agentruns.runtime.driver.options import DurableGraphDriverOptions as DurableGraphDriverOptions
    from agentruns.runtime.driver.options import GraphReplayLimits as GraphReplayLimits
    from agentruns.runtime.driver.report import GraphDriveReport as GraphDriveReport
    from agentruns.runtime.graph_builder import GraphBuilder as GraphBuilder
    from agentruns.runtime.graph_bundle import GraphBundle as GraphBundle
    from agentruns.runtime.joined import JoinedAgentRuns as JoinedAgentRuns
    from agentruns.runtime.lifecycle import DurableGraphLifecycle as DurableGraphLifecycle
    from agentruns.runtime.node_retry import NodeRetry as NodeRetry
    from agentruns.runtime.registry import ExecutableGraphRegistry as ExecutableGraphRegistry
    from agentruns.runtime.registry import ExecutableGraphRegistryBuilder as ExecutableGraphRegistryBuilder
    from agentruns.runtime.replay import RunReader as RunReader
    from agentruns.runtime.runs import DurableAgentRuns as DurableAgentRuns
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
    from agentruns.runtime.worker import AgentWorker as AgentWorker
    from agentruns.runtime.worker import AgentWorkerOptions as AgentWorkerOptions
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
    "domain.waits": "NodeWait",
    "domain.graph.reducers": "GraphReducer MergeReducer NodeUpdate ReplaceReducer",
    "domain.graph.definition": "CompiledGraph",
    "domain.graph.executable": "GraphNodeExecutor GraphNodeScheduling",
    # submit and read
    "domain.submission_key": "AgentSubmissionKey",
    "domain.submission": "DurableAgentAdmissionRequest GraphState MutationOutcome",
    "domain.run_ids": "AgentRunIds",
    "domain.ids": "RunId",
    "domain.scalars": "TenantId",
    "domain.agent": "AgentDescriptor",
    "domain.request": "AgentRequest",
    "domain.authority": "AgentAdmissionAuthority AgentAdmissionBudgetLayer",
    "domain.budget_limits": "BudgetLimits",
    "domain.usage": "BudgetUsage",
    "domain.identity": "CapabilityIdentity CapabilityReference GraphReference PrincipalIdentity SchemaReference",
    "domain.snapshot": "AgentRunSnapshot RunObservation",
    "domain.status": "RunStatus",
    "domain.outcome": "AgentRunTerminalOutcome CancelledOutcome FailedOutcome SucceededOutcome",
    "domain.result": "AgentResult",
    "domain.failure": "Failure",
    "runtime.runs": "DurableAgentRuns",
    "runtime.joined": "JoinedAgentRuns",
    "runtime.submission": "AgentRunAdmission",
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
    "runtime.agent_loop": "DurableAgentLoop",
    "runtime.worker": "AgentWorker AgentWorkerOptions",
    "runtime.shutdown": "ShutdownSignal",
    "runtime.replay": "RunReader",
    # operate
    "operations.embedded": "EmbeddedServer",
    "operations.verification": "verify_schema",
    # errors: the families, and what a caller of submit and load tells apart; agentruns.errors has all
    "errors": (
        "AgentAdmissionConflictError AgentAdmissionRejectedError AgentRunsError "
        "AgentSubmissionConflictError AgentSubmissionNotFoundError ConflictError CorruptDataError "
        "DeploymentError InvalidValueError InvariantError InvocationFailedError NodeFailedError "
        "NotFoundError RefusedError RunNotFoundError SchemaRejectedError SchemaVerificationError "
        "StoreError UnitOfWorkError"
    ),
}

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
