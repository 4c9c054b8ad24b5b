"""Believe what was read of a run: its ends against each other, then against this process's registry."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from attrs import define, field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.admission_reader import AdmissionReader
from agentruns.domain.digests import Digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_checks import VerifiedRun, verify_ends
from agentruns.domain.run_ends_outcome import show
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.errors import CorruptDataError, ExecutableGraphUnavailableError, SchemaRejectedError
from agentruns.runtime.registry import ExecutableGraphRegistry

#: Bytes of the admissions whose records are kept.
MAXIMUM_KEPT_BYTES: Final = 64 * 1024 * 1024


@define
class DecodedAdmissions:
    """Decode each admission once; the least recently used ones are let go beyond a bound. Any thread may ask.

    Whoever asks has hashed the bytes that it has just read, so a kept record stands for exactly these bytes.
    """

    maximum_bytes: int = MAXIMUM_KEPT_BYTES
    _kept: OrderedDict[Digest, tuple[AgentAdmissionIntent, int]] = field(factory=OrderedDict, init=False)
    _size: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _reader: AdmissionReader = field(factory=AdmissionReader, init=False)

    def __call__(self, digest: Digest, body: bytes) -> AgentAdmissionIntent:
        """Give the record of a body that hashes to the digest."""
        with self._lock:
            found = self._kept.get(digest)
            if found is not None:
                self._kept.move_to_end(digest)
                return found[0]
        intent = self._reader.read(body)
        self._keep(intent)
        return intent

    def keep(self, intent: AgentAdmissionIntent) -> None:
        """Take a record that was made here: its canonical bytes need not be decoded any more."""
        self._reader.learn(intent)
        self._keep(intent)

    def _keep(self, intent: AgentAdmissionIntent) -> None:
        digest, size = intent.digest, len(intent.canonical)
        with self._lock:
            if digest not in self._kept:
                self._kept[digest] = (intent, size)
                self._size += size
            while self._size > self.maximum_bytes:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped


@frozen(kw_only=True)
class RunVerifier:
    """Turn what was read into what may be shown.

    Attributes:
        executables: graphs and schemas of this process.
    """

    executables: ExecutableGraphRegistry
    _decode: DecodedAdmissions = field(factory=DecodedAdmissions, init=False, eq=False, repr=False)

    def expect(self, intent: AgentAdmissionIntent) -> None:
        """Take note of what was admitted here, so that reading the run does not decode it."""
        self._decode.keep(intent)

    def verify(self, ends: RunEnds) -> VerifiedRun:
        """Hold the ends of a run against each other. No registry is asked.

        Raises:
            NotFoundError: the tenant has no such run, or nothing under the key.
            CorruptDataError: stored evidence does not verify.
        """
        return verify_ends(ends, self._decode)

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
