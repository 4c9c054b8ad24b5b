"""The ids that a caller makes for one run."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.ids import CheckpointId, EventId, InvocationId, RunId, ThreadId
from agentruns.domain.members import check_members


@frozen(kw_only=True)
class AgentRunIds:
    """Hold the candidates of one attempt to submit, made before the first try and kept for every retry.

    If the key already stands for a run, they leave no trace.
    """

    run_id: RunId
    thread_id: ThreadId
    invocation_id: InvocationId
    admission_event_id: EventId
    initial_checkpoint_id: CheckpointId

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @classmethod
    def generate(cls) -> AgentRunIds:
        """Make five fresh ids."""
        return cls(
            run_id=RunId.generate(),
            thread_id=ThreadId.generate(),
            invocation_id=InvocationId.generate(),
            admission_event_id=EventId.generate(),
            initial_checkpoint_id=CheckpointId.generate(),
        )
