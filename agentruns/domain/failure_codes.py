"""The codes and origins of failures that the library itself declares."""

from __future__ import annotations

from typing import Final

from agentruns.domain.scalars import FailureCode, FailureOrigin

ORIGIN_RUNTIME: Final = FailureOrigin("agentruns.runtime")
ORIGIN_OPERATOR: Final = FailureOrigin("agentruns.operator")
ORIGIN_GRAPH: Final = FailureOrigin("agentruns.runtime.graph")

OPERATOR_CANCELLED: Final = FailureCode("operator.run.cancelled")
DEADLINE_EXPIRED: Final = FailureCode("agent.deadline.expired")
INTERRUPT_EXPIRED: Final = FailureCode("agent.interrupt.expired")

SUPERSTEP_LIMIT_REACHED: Final = FailureCode("runtime.graph.superstep_limit_reached")
BARRIER_REJECTED: Final = FailureCode("runtime.graph.barrier_rejected")
ATTEMPTS_EXHAUSTED: Final = FailureCode("runtime.graph.attempts_exhausted")
UNSUPPORTED_RECOVERY_CLASS: Final = FailureCode("runtime.graph.unsupported_recovery_class")
RESULT_REJECTED: Final = FailureCode("runtime.graph.result_rejected")

NODE_INVALID_RESULT: Final = FailureCode("runtime.node.invalid_result")
NODE_INVALID_FAILURE: Final = FailureCode("runtime.node.invalid_failure")
NODE_TASK_PANICKED: Final = FailureCode("runtime.node_task_panicked")
NODE_TIMEOUT: Final = FailureCode("runtime.node_timeout")

MODEL_CANCELLED: Final = FailureCode("runtime.model.cancelled")
TOOL_CANCELLED: Final = FailureCode("runtime.tool.cancelled")
TOOL_CANCELLED_OUTCOME_UNKNOWN: Final = FailureCode("runtime.tool.cancelled_outcome_unknown")
TOOL_DEADLINE_OUTCOME_UNKNOWN: Final = FailureCode("runtime.tool.deadline_outcome_unknown")
