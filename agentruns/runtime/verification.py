"""Believe what was read of a run: its ends against each other, then against this process's registry."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_checks import VerifiedRun, verify_ends
from agentruns.domain.run_ends_outcome import show
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.errors import CorruptDataError, ExecutableGraphUnavailableError, SchemaRejectedError
from agentruns.runtime.registry import ExecutableGraphRegistry


@frozen(kw_only=True)
class RunVerifier:
    """Turn what was read into what may be shown.

    Attributes:
        executables: graphs and schemas of this process.
    """

    executables: ExecutableGraphRegistry

    def expect(self, intent: AgentAdmissionIntent) -> None:
        """Take note of what was admitted here, so that reading the run does not decode it."""
        self.executables.admissions.keep(intent)

    def verify(self, ends: RunEnds) -> VerifiedRun:
        """Hold the ends of a run against each other. No registry is asked.

        Raises:
            NotFoundError: the tenant has no such run, or nothing under the key.
            CorruptDataError: stored evidence does not verify.
        """
        return verify_ends(ends, self.executables.admissions)

    def snapshot(self, run: VerifiedRun) -> AgentRunSnapshot:
        """Show a verified run.

        Raises:
            DeploymentError: this process lacks the graph or a schema; deploy one that has it.
            SchemaRejectedError: input or evidence do not satisfy their schema.
            CorruptDataError: how the run ended does not verify.
        """
        intent = run.admission.intent
        find_graph(intent, self.executables)
        check_input_and_evidence(intent, self.executables)
        snapshot = show(run)
        self._check_output(run, snapshot)
        return snapshot

    def _check_output(self, run: VerifiedRun, snapshot: AgentRunSnapshot) -> None:
        """Check a result against its schema again. It was accepted before it committed, so a refusal is corruption."""
        if not isinstance(snapshot.outcome, SucceededOutcome):
            return
        result = snapshot.outcome.result
        try:
            self.executables.schemas.validate(result.output_schema, result.output, "output")
        except SchemaRejectedError:
            is_refused = True
        else:
            is_refused = False
        if is_refused:
            provenance = run.admission.intent.provenance
            raise CorruptDataError(tenant_id=provenance.tenant_id, run_id=provenance.run_id, component="outcome")


def find_graph(intent: AgentAdmissionIntent, executables: ExecutableGraphRegistry) -> ExecutableGraph:
    """Resolve exactly the graph that an admission pins.

    Raises:
        ExecutableGraphUnavailableError: ``not_installed``.
    """
    graph = executables.resolve(intent.graph.definition_digest)
    if graph.definition.reference != intent.graph:
        raise ExecutableGraphUnavailableError(reason="not_installed", graph=intent.graph)
    return graph


def check_input_and_evidence(intent: AgentAdmissionIntent, executables: ExecutableGraphRegistry) -> None:
    """Validate what the client and its authority said, each document once per process.

    Raises:
        SchemaRejectedError: ``part`` says which.
        SchemaUnavailableError: no verdict here.
    """
    schemas, evidence = executables.schemas, intent.authority.evidence
    schemas.validate(intent.request.input_schema, intent.request.input, "input")
    schemas.validate(evidence.schema, evidence.data, "evidence")
