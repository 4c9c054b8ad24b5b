"""The rule of the event that begins a run."""

from __future__ import annotations

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.judging import Verdict, judge, unavailable
from agentruns.domain.ledger.bodies import ADMISSION, MAX_STATE_BYTES, BodyRow
from agentruns.domain.ledger.checkpoint import Checkpoint, state_digest
from agentruns.domain.ledger.data import AgentAdmitted
from agentruns.domain.ledger.findings import FOREIGN, UNSUPPORTED
from agentruns.domain.ledger.records import AdmissionFacts, CurrentCheckpoint
from agentruns.domain.ledger.step import Consequence, Step
from agentruns.errors import AgentAdmissionRejectedError, InvalidValueError

RULE = "admission"


def admitted(step: Step, data: AgentAdmitted) -> Consequence:
    """Begin a run: the admission is the one that the event pins, and so are graph and checkpoint 0."""
    intent = step.body(ADMISSION, data.admission_digest)
    _check_intent(step, data, intent)
    checkpoint = _checkpoint(step, data)
    facts = AdmissionFacts(
        admission_digest=data.admission_digest,
        submission_digest=data.submission_digest,
        graph_digest=data.graph_digest,
        input_digest=data.input_digest,
        policy_digest=data.policy_digest,
        admitted_at=step.event.recorded_at,
        deadline=intent.budget.deadline,
    )
    counts = {
        "graph_depth": 1,
        "fan_out": len(checkpoint.ready_nodes),
        "input_bytes": intent.request.input.size,
        "checkpoint_bytes": checkpoint.state.size,
    }
    return Consequence(changes={"admission": facts, "checkpoint": checkpoint}, counts=counts)


def _check_intent(step: Step, data: AgentAdmitted, intent: AgentAdmissionIntent) -> None:
    provenance = intent.provenance
    if (provenance.tenant_id, provenance.run_id) != (step.state.tenant_id, step.state.run_id):
        raise step.breach(RULE, reason=FOREIGN)
    pinned = (intent.graph.definition_digest, intent.request.input.digest, intent.authority.policy_digest)
    if pinned != (data.graph_digest, data.input_digest, data.policy_digest):
        raise step.breach(RULE)
    if step.graph.definition.reference != intent.graph:
        raise step.breach(RULE, reason="graph")
    if intent.budget.deadline <= step.event.recorded_at:
        refusal = AgentAdmissionRejectedError(
            reason="deadline", tenant_id=provenance.tenant_id, run_id=provenance.run_id
        )
        raise step.breach(RULE, reason="deadline", refusal=refusal)


def _checkpoint(step: Step, data: AgentAdmitted) -> CurrentCheckpoint:
    row, definition = step.row(data.checkpoint_digest), step.graph.definition
    if row.checkpoint_id is None or len(row.data) > MAX_STATE_BYTES:
        raise step.breach("body")
    checkpoint = Checkpoint.initial(
        row.checkpoint_id,
        graph_digest=data.graph_digest,
        entry_nodes=definition.entry_nodes,
        state_digest=state_digest(row.data),
    )
    if checkpoint.digest != data.checkpoint_digest:
        raise step.breach("body")
    state = _state(step, row)
    verdict = judge(step.graph, definition.state_schema, state)
    if verdict is Verdict.FAILED:
        raise unavailable(step.graph, "validator")
    if verdict is Verdict.REJECTED:
        raise step.breach(RULE, reason="state")
    return CurrentCheckpoint(
        checkpoint_id=checkpoint.checkpoint_id,
        digest=checkpoint.digest,
        state_digest=checkpoint.state_digest,
        state=state,
        ready_nodes=checkpoint.ready_nodes,
        sequence=step.event.sequence,
    )


def _state(step: Step, row: BodyRow) -> BoundedJson:
    if step.is_building and isinstance(row.record, BoundedJson) and row.record.data is row.data:
        return row.record
    try:
        return BoundedJson.read(row.data)
    except InvalidValueError:
        pass
    raise step.breach("body", reason=UNSUPPORTED)
