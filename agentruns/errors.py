"""Every error that this package raises: one hierarchy, told apart by class and closed reasons.

::

    AgentRunsError
    ├── InvalidValueError            also a ValueError
    │   ├── InvalidJsonError
    │   ├── InvalidOptionError
    │   ├── DefinitionError
    │   └── SchemaRejectedError
    ├── DeploymentError
    │   ├── SchemaUnavailableError
    │   ├── ExecutableGraphUnavailableError
    │   └── ProviderUnavailableError
    ├── SchemaVerificationError
    ├── RefusedError
    │   ├── AgentAdmissionRejectedError
    │   ├── BudgetExceededError
    │   ├── RunQuarantinedError
    │   ├── RunNotRunnableError
    │   ├── NotYetAvailableError             retryable
    │   ├── LeaseLostError
    │   ├── StaleHeadError
    │   ├── RetryNotAuthorizedError
    │   ├── CheckpointBlockedError
    │   ├── BarrierRejectedError
    │   ├── ReducerRejectedError
    │   ├── WaitAlreadySettledError
    │   ├── ResolverNotPermittedError
    │   └── EvidenceUnavailableError         retryable
    ├── ConflictError
    │   ├── AgentSubmissionConflictError
    │   ├── AgentAdmissionConflictError
    │   ├── IdConflictError
    │   └── CancellationConflictError
    ├── NotFoundError                also a LookupError
    │   ├── RunNotFoundError
    │   └── AgentSubmissionNotFoundError
    ├── CorruptDataError
    ├── StoreError
    │   ├── DatabaseClockRegressionError     retryable
    │   ├── ContentionError                  retryable
    │   ├── StoreUnavailableError            retryable
    │   ├── CommitOutcomeUnknownError        retryable
    │   └── TerminalCommitError
    ├── UnitOfWorkError
    ├── NodeFailedError
    ├── InvocationFailedError
    └── InvariantError

An error is a value: it has fields, and makes one sentence from them that says what happened, which id it is about
and what to do. No sentence holds a key, input, prompt, state, output or connection string.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

from attrs import asdict, field, fields, frozen

if TYPE_CHECKING:
    from datetime import timedelta

    from agentruns.domain.digests import Digest
    from agentruns.domain.failure import Failure
    from agentruns.domain.usage import BudgetUsage


def _rebuild(cls: type[AgentRunsError], members: dict[str, Any]) -> AgentRunsError:
    return cls(**members)


@frozen(kw_only=True, slots=False, eq=False)
class AgentRunsError(Exception):
    """Catch this to catch everything that the package raises on its own account.

    Attributes:
        retryable: whether the identical call, with the same key and ids, may succeed later although nobody changes
            anything. A property of the class, never of a text.
    """

    retryable: ClassVar[bool] = False

    #: What happened, in words; a class with reasons says it once for each of them.
    what: ClassVar[str] = "the call failed"
    advice: ClassVar[str] = ""
    sentences: ClassVar[dict[str, str]] = {}

    def __str__(self) -> str:
        reason = getattr(self, "reason", None)
        happened = self.sentences.get(reason, self.what) if isinstance(reason, str) else self.what
        details = ", ".join(self._details())
        sentence = f"{happened} ({details})" if details else happened
        advice = self._advice()
        return f"{sentence}; {advice}" if advice else sentence

    def _advice(self) -> str:
        """Say what to do; a class whose advice differs by a member says so here."""
        return self.advice

    def _details(self) -> list[str]:
        """Name each member that is public, set and short: ids, counts, reasons and digests."""
        return [
            f"{attribute.name}={value}"
            for attribute in fields(type(self))
            if attribute.repr and (value := getattr(self, attribute.name)) not in (None, "", ())
        ]

    def __reduce__(self) -> tuple[Callable[..., AgentRunsError], tuple[type[AgentRunsError], dict[str, Any]]]:
        return _rebuild, (type(self), asdict(self, recurse=False))


#: So many findings stand in a sentence.
_FINDINGS_SHOWN = 10


# --- values -------------------------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class InvalidValueError(AgentRunsError, ValueError):
    """A value breaks a grammar, a bound or a rule between members. Raised before any SQL: correct the input.

    Attributes:
        type_name: the class that refused.
        reason: stable, for programs.
        path: declared members and indices that lead to the place, in wire form.
        offset: byte offset of the first offending byte, for scalars.
        dimensions: names of budget dimensions that nobody stated.
        count: how many unknown members there were; their names are in no text.
    """

    what = "a value is not valid"
    advice = "correct the value"

    type_name: str
    reason: str
    path: tuple[str | int, ...] = ()
    offset: int | None = None
    dimensions: tuple[str, ...] = ()
    count: int | None = None


@frozen(kw_only=True, slots=False, eq=False)
class InvalidJsonError(InvalidValueError):
    """A JSON document breaks a rule. ``pointer`` leads to the place; it may be private, so no text shows it."""

    what = "a JSON document is not acceptable"
    advice = "correct the document"
    sentences: ClassVar[dict[str, str]] = {
        "integer_out_of_range": "an integer is outside -(2^53-1)..2^53-1: write it as a string",
        "duplicate_key": "an object has a member name twice",
        "lone_surrogate": "a string holds half of a surrogate pair",
        "non_finite_number": "NaN and infinities are no JSON numbers",
        "input_too_large": "the document is too large",
        "invalid_utf8": "the document is not UTF-8 text",
    }

    type_name: str = "json"
    limit: int | None = None
    actual: int | None = None
    line: int | None = None
    column: int | None = None
    pointer: str | None = field(default=None, repr=False)


@frozen(kw_only=True, slots=False, eq=False)
class InvalidOptionError(InvalidValueError):
    """An option of a store, driver, worker or policy, or the schema's name, breaks its bound."""

    what = "an option is outside its bound"
    advice = "choose a value within the bound"

    type_name: str = "option"
    reason: str = "out_of_range"
    option: str
    value: str
    bound: str


@frozen(kw_only=True, slots=False, eq=False)
class DefinitionError(InvalidValueError):
    """A graph, a schema registry or an executable registry cannot be used as it is defined.

    Attributes:
        kind: ``graph``, ``schema`` or ``registry``.
        findings: everything that is wrong, one line each, where more than one thing was looked for.
    """

    what = "a definition cannot be used"
    advice = "correct the definition"

    type_name: str = "definition"
    kind: str
    findings: tuple[str, ...] = ()
    node_id: object | None = None
    route_id: object | None = None
    reference: object | None = None
    limit: int | None = None
    actual: int | None = None


@frozen(kw_only=True, slots=False, eq=False)
class SchemaRejectedError(InvalidValueError):
    """Data does not satisfy its schema. The data and the place inside it are in no text."""

    what = "data does not satisfy its schema"
    advice = "send data that the schema accepts"

    type_name: str = "json"
    reason: str = "schema_rejected"
    reference: object
    keyword: str
    schema_pointer: str
    pointer: str = field(repr=False)
    part: str | None = None


# --- deployment -----------------------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class DeploymentError(AgentRunsError):
    """This process lacks something, or contradicts what is stored. Change the deployment, not the request."""

    what = "this process cannot do that"
    advice = "correct the deployment"
    sentences: ClassVar[dict[str, str]] = {
        "node_threads_exhausted": "every thread for nodes is held by a node that did not end: restart the process",
        "fairness_policy_not_published": "the shard has no such policy: publish it before reserving turns",
        "embedded_version": "the data directory belongs to another major version of PostgreSQL",
        "embedded_missing": "the binaries of the embedded PostgreSQL are not installed",
        "database_refused": "the database does not exist, or refuses this role: check the connection's settings",
        "embedded_failed": "the embedded PostgreSQL did not start",
        "embedded_stopped": "no embedded PostgreSQL is running: run `agentruns server start`",
    }

    reason: str
    detail: str = ""


@frozen(kw_only=True, slots=False, eq=False)
class SchemaUnavailableError(DeploymentError):
    """The exact schema is not installed, or its validator gave no verdict."""

    what = "a schema gives no verdict here"
    advice = "install the exact schema"

    reference: object
    part: str | None = None


@frozen(kw_only=True, slots=False, eq=False)
class ExecutableGraphUnavailableError(DeploymentError):
    """This process cannot work with that graph.

    Attributes:
        superstep: with ``size`` and ``limit`` said of a ``result_limit``: whose results, their bytes, and how many this
            process reads.
    """

    what = "this process cannot work with the graph"
    sentences: ClassVar[dict[str, str]] = {
        "not_installed": "the graph is not in this process's registry: install the exact graph",
        "not_registered": "the graph is not registered for the tenant: register the exact graph",
        "input_schema": "agent and graph disagree about the input schema",
        "output_schema": "agent and graph disagree about the output schema",
        "result_limit": "the results of one superstep are too large here: raise maximum_barrier_result_bytes",
    }

    graph: object
    tenant_id: object | None = None
    superstep: int | None = None
    size: int | None = None
    limit: int | None = None


@frozen(kw_only=True, slots=False, eq=False)
class ProviderUnavailableError(DeploymentError):
    """No model or tool of that identity is registered here."""

    what = "no provider of that identity is registered"
    advice = "register the provider"

    identity: object


@frozen(kw_only=True, slots=False, eq=False)
class SchemaVerificationError(AgentRunsError):
    """The database's tables are not what this release needs. The sentence names the command that repairs it.

    Attributes:
        findings: every object or privilege that is missing, different or too much; the sentence shows the first ones.
    """

    what = "the database schema is not usable"
    sentences: ClassVar[dict[str, str]] = {
        "unsupported_server": "the server is not a supported PostgreSQL: use 16, 17 or 18 with UTF8 encoding",
        "not_migrated": "the schema has not been migrated: run `agentruns db upgrade`",
        "behind": "the schema is older than this release: run `agentruns db upgrade`",
        "ahead": "the schema is newer than this release: deploy a newer release",
        "tampered": "a revision is not the one that was released: restore the released migrations",
        "incomplete": "objects are missing or different: restore them as the migrations made them",
        "missing_privileges": "the role may not do what it must: run `agentruns grants apply`",
        "excess_privileges": "the role may do what it must not: run `agentruns grants apply`",
        "already_applied": "the revision has been applied already: upgrade in one way only",
    }

    reason: str
    schema: str
    found: str = ""
    wanted: str = ""
    findings: tuple[str, ...] = field(default=(), repr=False)

    def _details(self) -> list[str]:
        shown = self.findings[:_FINDINGS_SHOWN]
        more = len(self.findings) - len(shown)
        return [*super()._details(), *shown, *([f"{more} more"] if more else [])]


# --- refusals -------------------------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class RefusedError(AgentRunsError):
    """A rule said no and nothing was written. Subclasses are what a caller handles apart.

    Attributes:
        found: what was there instead, where no id says it.
    """

    what = "a rule refused the call and nothing was written"
    sentences: ClassVar[dict[str, str]] = {
        "not_releasable": "the quarantine was not released: look at what was found, and repeat when it is put right",
        "unfit_for_grants": "roles or ownership are not what grants need: change what was found, and repeat",
    }

    reason: str
    tenant_id: object | None = None
    run_id: object | None = None
    node_id: object | None = None
    found: str = ""


@frozen(kw_only=True, slots=False, eq=False)
class AgentAdmissionRejectedError(RefusedError):
    """The request can no longer be admitted: ``deadline`` or ``size``."""

    what = "the request can no longer be admitted"
    advice = "make a new request with a new key"


@frozen(kw_only=True, slots=False, eq=False)
class BudgetExceededError(RefusedError):
    """Usage does not fit into the budget.

    Attributes:
        reason: ``deadline``, ``limit``, ``unbudgeted_currency``, ``cost``, ``unpriced_cost`` or ``insufficient``.
    """

    what = "usage does not fit into the budget"
    advice = "admit the work with a larger budget"

    dimension: str
    limit: str | None = None
    actual: str | None = None
    currency: str | None = None


@frozen(kw_only=True, slots=False, eq=False)
class RunQuarantinedError(RefusedError):
    """The run is isolated because its evidence contradicts itself, or an operator said so.

    Attributes:
        component: what does not verify, as the record of the quarantine has it; known to who has just found it.
    """

    what = "the run is quarantined"
    advice = "an operator decides"

    reason: str = "quarantined"
    quarantine_id: object | None = None
    component: str | None = None


@frozen(kw_only=True, slots=False, eq=False)
class RunNotRunnableError(RefusedError):
    """The run's status does not permit the call.

    Attributes:
        reason: ``terminal``, ``waiting``, ``cancelling``, ``no_checkpoint`` or ``transition``.
    """

    what = "the run's status does not permit this"
    advice = "load the run and decide anew"

    status: object | None = None
    revision: object | None = None


@frozen(kw_only=True, slots=False, eq=False)
class NotYetAvailableError(RefusedError):
    """Time alone may cure it.

    Attributes:
        reason: ``leased``, ``deferred``, ``tenant_at_capacity``, ``retry_delay``, ``driven_here`` or
            ``invocation_in_flight``.
        not_before: the database's instant from which a new try makes sense, where it is known.
    """

    retryable = True
    what = "it is too early"
    advice = "try again later"

    not_before: object | None = None


@frozen(kw_only=True, slots=False, eq=False)
class LeaseLostError(RefusedError):
    """The run is not yours, or no longer: stop working on it.

    Attributes:
        reason: ``stale_fence``, ``no_lease``, ``expired`` or ``context_closed``.
    """

    what = "the lease is lost"
    advice = "stop: whoever claims the run next goes on"


@frozen(kw_only=True, slots=False, eq=False)
class StaleHeadError(RefusedError):
    """The run moved on since it was read: read again, or drop the handoff.

    Attributes:
        reason: ``journal``, ``recovery``, ``handoff``, ``invocation`` or ``epoch``.
    """

    what = "the run moved on since it was read"
    advice = "read it and plan again"


@frozen(kw_only=True, slots=False, eq=False)
class RetryNotAuthorizedError(RefusedError):
    """No further attempt is permitted: ``not_advised``, ``unsafe_effect`` or ``attempt_limit``."""

    what = "no further attempt is permitted"


@frozen(kw_only=True, slots=False, eq=False)
class CheckpointBlockedError(RefusedError):
    """A barrier or an end would stand over calls that are not settled."""

    what = "calls of the run are not settled"
    advice = "settle them first"

    reason: str = "unsettled"
    invocation_ids: tuple[object, ...] = ()


@frozen(kw_only=True, slots=False, eq=False)
class BarrierRejectedError(RefusedError):
    """The results of a superstep cannot become a barrier. The run fails."""

    what = "the results cannot become a barrier"

    node_ids: tuple[object, ...] = ()


@frozen(kw_only=True, slots=False, eq=False)
class ReducerRejectedError(RefusedError):
    """Raised by a reducer that refuses the updates.

    Only :class:`DeploymentError` or :class:`MemoryError` mean that it cannot run now.
    """

    what = "the reducer refuses the updates"

    reason: str = "reducer_rejected"
    code: str


@frozen(kw_only=True, slots=False, eq=False)
class WaitAlreadySettledError(RefusedError):
    """The wait is over: ``resolved``, ``fired``, ``abandoned`` or ``expired``. The first settlement stands."""

    what = "the wait is over"

    wait_id: object


@frozen(kw_only=True, slots=False, eq=False)
class ResolverNotPermittedError(RefusedError):
    """The resolver is not the principal that the wait names, or lacks scopes."""

    what = "the resolver may not settle this wait"

    reason: str = "not_permitted"
    wait_id: object


@frozen(kw_only=True, slots=False, eq=False)
class EvidenceUnavailableError(RefusedError):
    """Exact usage is not known now: ``usage`` or ``budget``. The run stays as it is."""

    retryable = True
    what = "exact usage is not known now"
    advice = "try again later"

    invocation_id: object | None = None


# --- conflicts and misses -------------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class ConflictError(AgentRunsError):
    """A key or an id already stands for other content. Nothing was written."""

    what = "the id stands for other content"
    advice = "use a new id for new work"

    tenant_id: object | None = None
    run_id: object | None = None


@frozen(kw_only=True, slots=False, eq=False)
class AgentSubmissionConflictError(ConflictError):
    """The submission key stands for something else. ``run_id`` is the recorded run."""

    what = "the submission key and the run do not belong together"
    advice = "use a new key only for new work"

    recorded_digest: Digest
    offered_digest: Digest


@frozen(kw_only=True, slots=False, eq=False)
class AgentAdmissionConflictError(ConflictError):
    """The run id is taken by other content."""

    what = "the run id is taken by other content"
    advice = "generate fresh ids"


@frozen(kw_only=True, slots=False, eq=False)
class IdConflictError(ConflictError):
    """An id stands for other content.

    Attributes:
        kind: ``event``, ``attempt``, ``invocation``, ``graph`` (publish a new version), ``fairness_policy``
            (publish a new shard) or ``reservation``.
    """

    advices: ClassVar[dict[str, str]] = {
        "graph": "publish a changed graph under a new version",
        "fairness_policy": "use another shard id for another policy",
    }

    kind: str
    id: object

    def _advice(self) -> str:
        return self.advices.get(self.kind, self.advice)


@frozen(kw_only=True, slots=False, eq=False)
class CancellationConflictError(ConflictError):
    """Cancellation was already requested by another event; the first reason stands."""

    what = "cancellation has already been requested"
    advice = "nothing is left to do"

    recorded_failure_id: object


@frozen(kw_only=True, slots=False, eq=False)
class NotFoundError(AgentRunsError, LookupError):
    """Unknown, or another tenant's: the two look alike on purpose."""

    what = "nothing is known under this id"
    advice = "check the tenant and the id"

    kind: str
    tenant_id: object
    id: object | None = None


@frozen(kw_only=True, slots=False, eq=False)
class RunNotFoundError(NotFoundError):
    """The tenant has no run of that id."""

    what = "the tenant has no such run"
    kind: str = "run"


@frozen(kw_only=True, slots=False, eq=False)
class AgentSubmissionNotFoundError(NotFoundError):
    """The tenant has no run under that submission key. The key is not repeated."""

    what = "the tenant has no run under this key"
    kind: str = "submission"


# --- the database ---------------------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class CorruptDataError(AgentRunsError):
    """Stored evidence does not verify. No data is returned; stop, and quarantine.

    Attributes:
        component: the rule or the ``table.column`` that does not verify.
        reason: what of the rule, where it says more than one thing.
        node_ids: the nodes that it is about.
        superstep: the step whose barrier it is about.
    """

    what = "stored evidence does not verify"
    advice = "stop and let an operator look at it"

    tenant_id: object | None = None
    run_id: object | None = None
    component: str
    reason: str = ""
    node_ids: tuple[object, ...] = ()
    superstep: int | None = None


@frozen(kw_only=True, slots=False, eq=False)
class StoreError(AgentRunsError):
    """The database, not the request."""

    what = "the database refused"


@frozen(kw_only=True, slots=False, eq=False)
class DatabaseClockRegressionError(StoreError):
    """The database's clock is behind what it has already recorded."""

    retryable = True
    what = "the database's clock went back"
    advice = "try again later"

    observed: object | None = None
    recorded: object | None = None


@frozen(kw_only=True, slots=False, eq=False)
class ContentionError(StoreError):
    """Others kept moving the row, or held the lock: ``rebuilt`` or ``migration_lock``."""

    retryable = True
    what = "others were faster each time"
    advice = "try again"

    reason: str = "rebuilt"
    run_id: object | None = None
    attempts: int | None = None
    holder: str = ""


@frozen(kw_only=True, slots=False, eq=False)
class StoreUnavailableError(StoreError):
    """The database could not be reached, or gave no answer, in all attempts."""

    retryable = True
    what = "the database is not available"
    advice = "try again with the same key and ids"

    attempts: int
    sqlstate: str = ""


@frozen(kw_only=True, slots=False, eq=False)
class CommitOutcomeUnknownError(StoreError):
    """All attempts ended in doubt: the commit may have happened."""

    retryable = True
    what = "it is not known whether the commit happened"
    advice = "try again with the same key, never with a new one"

    attempts: int


@frozen(kw_only=True, slots=False, eq=False)
class TerminalCommitError(StoreError):
    """An exchange with a provider happened and its end is not committed: commit ``handoff``."""

    what = "an exchange happened and its end is not committed"
    advice = "commit the handoff"

    handoff: object = field(repr=False)


# --- use, user code, defects ----------------------------------------------------------------------------------------


@frozen(kw_only=True, slots=False, eq=False)
class UnitOfWorkError(AgentRunsError):
    """A session, engine or event loop is used wrongly; correct the calling code."""

    what = "the unit of work is used wrongly"
    sentences: ClassVar[dict[str, str]] = {
        "read_only": "the transaction is read-only: pass a session that may write",
        "autocommit": "the connection is in autocommit: pass one that is in a transaction, or none",
        "no_transaction": "there is no transaction, or it has ended: begin one, and keep it until the block is left",
        "not_entered": "the unit of work was not entered: use it in a `with` block",
        "closed": "the unit of work is closed: open a new one",
        "wrong_event_loop": "the engine belongs to another event loop: make one store per loop",
        "on_event_loop": "the event loop would wait for itself for ever: use `await context.resolutions()`",
    }

    reason: str


@frozen(kw_only=True, slots=False, eq=False)
class NodeFailedError(AgentRunsError):
    """Raise this in a node instead of returning: its attempt has failed as declared."""

    what = "the node declared a failure"

    failure: Failure = field(repr=False)
    usage: BudgetUsage | None = field(default=None, repr=False)

    @classmethod
    def retry_after(
        cls,
        delay: timedelta,
        message: str = "the node asks for another attempt",
        *,
        code: str = "application.retry",
        origin: str = "application",
        usage: BudgetUsage | None = None,
    ) -> Self:
        """Ask for another attempt once ``delay`` has passed; message, code and origin are public.

        Args:
            delay: whole milliseconds, at most 30 days; counted from the commit of the failure.
            message: for people.
            code: what went wrong, for programs.
            origin: which component says so.
            usage: what this attempt has used.

        Raises:
            InvalidValueError: an argument breaks its grammar or bound.
        """
        # A failure is checked by the domain, which imports this module.
        failure = import_module("agentruns.domain.failure").Failure
        return cls(failure=failure.retry_after(delay, message, code=code, origin=origin), usage=usage)


@frozen(kw_only=True, slots=False, eq=False)
class InvocationFailedError(AgentRunsError):
    """Raised to a node when its model or tool call ended failed; the node may react."""

    what = "the call ended failed"

    failure: Failure = field(repr=False)


@frozen(kw_only=True, slots=False, eq=False)
class InvariantError(AgentRunsError):
    """A fault of the library. Nothing was written."""

    what = "an invariant of the library does not hold"
    advice = "report it"

    reason: str
