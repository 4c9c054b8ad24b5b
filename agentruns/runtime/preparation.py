"""Make everything of an admission that needs neither the database nor its clock."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.admission import AgentAdmission, AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.identity import SchemaReference
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.numbers import RunRevision
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import DurableAgentAdmissionRequest, key_digest, keyless_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import DeploymentError, ExecutableGraphUnavailableError, InvariantError
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.telemetry.calls import trace_context
from agentruns.runtime.verification import find_graph
from agentruns.store.admissions import NewAdmission
from agentruns.store.ends import RunLookup
from agentruns.store.keys import SubmissionProbe


@frozen(kw_only=True)
class PreparedSubmission:
    """A submission with its digests, judged by this process's registry.

    Attributes:
        request: what was submitted.
        key_digest: digest of the key; the key itself stays behind. ``None`` without a key.
        submission_digest: equal for equal content, whatever the ids.
        draft: all of the commit but its stamp; ``None`` when this process does not have the graph.
        kept_error: what this deployment lacks. It is raised only after the record had its say: a key that stands for
            other content is a conflict in every deployment.
        trace_context: W3C ``traceparent`` of the caller's span, if any; it is in no digest and never compared.
    """

    request: DurableAgentAdmissionRequest
    key_digest: Digest | None
    submission_digest: Digest
    draft: AdmissionDraft | None
    kept_error: DeploymentError | None
    trace_context: str | None

    @property
    def tenant_id(self) -> TenantId:
        """The tenant that submits."""
        return self.request.tenant_id

    @property
    def run_id(self) -> RunId:
        """The candidate run id."""
        return self.request.run_id

    @property
    def keyless_digest(self) -> Digest:
        """What stands in the key's column of a run without one."""
        return keyless_digest(self.tenant_id, self.run_id)

    @property
    def probe(self) -> SubmissionProbe:
        """What to look for when nothing was inserted."""
        return SubmissionProbe(
            tenant_id=self.tenant_id,
            run_id=self.run_id,
            key_digest=self.key_digest,
            graph_digest=self.request.intent.graph.definition_digest,
        )

    @property
    def lookup_by_key(self) -> RunLookup:
        """The run that the key stands for."""
        return RunLookup(tenant_id=self.tenant_id, key_digest=self.key_digest)

    @property
    def lookup_by_run(self) -> RunLookup:
        """The run under the candidate id."""
        return RunLookup(tenant_id=self.tenant_id, run_id=self.run_id)

    def stands_under_key_of(self, stored: VerifiedRun) -> bool:
        """Tell whether the run is the one that this key stands for."""
        return self.key_digest is not None and stored.key_digest == self.key_digest

    def admit(self, admitted_at: Timestamp) -> AgentAdmission:
        """Admit the intent at an instant of the database.

        Raises:
            AgentAdmissionRejectedError: the deadline has come.
        """
        return AgentAdmission.commit(self.request.intent, admitted_at)

    def build(self, admitted_at: Timestamp) -> NewAdmission:
        """Build what is inserted at an instant of the database, by the rules of the fold.

        Raises:
            AgentAdmissionRejectedError: the deadline has come.
        """
        if self.draft is None:
            raise InvariantError(reason="unprepared")
        admission = self.admit(admitted_at)
        return NewAdmission(
            admission=admission,
            key_digest=self.key_digest or self.keyless_digest,
            commit=self.draft.build(admitted_at),
            trace_context=self.trace_context,
        )

    def fresh_snapshot(self, admission: AgentAdmission) -> AgentRunSnapshot:
        """Show the run as it is when it has just been admitted."""
        intent = admission.intent
        return AgentRunSnapshot(
            provenance=intent.provenance,
            graph=intent.graph,
            admission_digest=intent.digest,
            admitted_at=admission.admitted_at,
            revision=RunRevision(1),
            status=RunStatus.ACTIVE,
            changed_at=admission.admitted_at,
            quarantined=False,
            outcome=None,
        )


def prepare(
    request: DurableAgentAdmissionRequest, executables: ExecutableGraphRegistry, *, key: AgentSubmissionKey | None
) -> PreparedSubmission:
    """Digest a submission and judge it, without a database and without a clock.

    Raises:
        TypeError: ``request`` is something else.
        SchemaRejectedError: input, evidence or initial state do not satisfy their schema; ``part`` says which.
    """
    check_argument("request", request, DurableAgentAdmissionRequest)
    graph, kept_error = _judge(request, executables)
    draft = None if graph is None else AdmissionDraft.of(request, graph)
    return PreparedSubmission(
        request=request,
        key_digest=None if key is None else key_digest(request.tenant_id, key),
        submission_digest=draft.submission_digest if draft else request.submission_digest,
        draft=draft,
        kept_error=kept_error,
        trace_context=trace_context(),
    )


def _judge(
    request: DurableAgentAdmissionRequest, executables: ExecutableGraphRegistry
) -> tuple[ExecutableGraph | None, DeploymentError | None]:
    """Find the graph and validate each part; the first thing that the deployment lacks is kept, invalid data raised."""
    graph: ExecutableGraph | None = None
    lacks: list[DeploymentError] = []
    try:
        graph = find_graph(request.intent, executables)
        _check_agent(request.intent, graph)
    except ExecutableGraphUnavailableError as error:
        lacks.append(error)
    for part, schema, data in _documents(request):
        try:
            executables.schemas.validate(schema, data, part)
        except DeploymentError as error:
            lacks.append(error)
    return graph, lacks[0] if lacks else None


def _documents(request: DurableAgentAdmissionRequest) -> tuple[tuple[str, SchemaReference, BoundedJson], ...]:
    intent, evidence = request.intent, request.intent.authority.evidence
    return (
        ("input", intent.request.input_schema, intent.request.input),
        ("evidence", evidence.schema, evidence.data),
        ("initial_state", request.initial_state.schema, request.initial_state.data),
    )


def _check_agent(intent: AgentAdmissionIntent, graph: ExecutableGraph) -> None:
    """Hold the schemas that the agent declares against its graph's."""
    descriptor, definition = intent.descriptor, graph.definition
    if descriptor.input_schema != definition.input_schema:
        raise ExecutableGraphUnavailableError(reason="input_schema", graph=intent.graph)
    if descriptor.output_schema != definition.output_schema:
        raise ExecutableGraphUnavailableError(reason="output_schema", graph=intent.graph)
