"""What a registry adds to verified evidence."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest
from agentruns.domain.status import RunStatus
from agentruns.domain.wire import decode
from agentruns.errors import CorruptDataError, InvalidValueError, SchemaRejectedError
from agentruns.runtime.decoded_admissions import OVERHEAD, DecodedAdmissions
from agentruns.runtime.verification import RunVerifier
from agentruns.testing import samples


def intent_of(_digest: Digest, body: bytes) -> AgentAdmissionIntent:
    return decode(body, AgentAdmissionIntent)


@define
class Deployment:
    """A registry whose schemas refuse one part."""

    graph: Any
    refused: str
    admissions: DecodedAdmissions = field(factory=DecodedAdmissions)

    @property
    def schemas(self) -> Deployment:
        return self

    def resolve(self, digest: Digest) -> Any:
        assert digest == self.graph.digest
        return self.graph

    def validate(self, reference: Any, _value: Any, part: str) -> None:
        if part == self.refused:
            raise SchemaRejectedError(reference=reference, part=part, keyword="type", schema_pointer="", pointer="")


def test_an_output_that_its_schema_refuses_is_corrupt_and_an_input_is_refused(record_of: Any) -> None:
    record = record_of("succeeded")
    ends, graph = record.read(), record.story.graph
    verifier: Any = RunVerifier
    refusals = {"output": CorruptDataError, "input": SchemaRejectedError, "evidence": SchemaRejectedError}
    for part, error in refusals.items():
        strict = verifier(executables=Deployment(graph, part))
        with pytest.raises(error):
            strict.snapshot(strict.verify(ends))
    lenient = verifier(executables=Deployment(graph, "nothing"))
    assert lenient.snapshot(lenient.verify(ends)).status is RunStatus.SUCCEEDED


def test_decoded_admissions_are_kept_within_their_bound() -> None:
    intents = [samples.admission_request(number).intent for number in (1, 2, 3)]
    kept = DecodedAdmissions(maximum_bytes=2 * (OVERHEAD + len(intents[0].canonical)))
    first = kept(intents[0].digest, intents[0].canonical)
    assert first == intents[0]
    second = kept(intents[1].digest, intents[1].canonical)
    assert kept(intents[0].digest, b"never read") is first
    kept(intents[2].digest, intents[2].canonical)
    assert kept(intents[0].digest, b"never read") is first
    assert kept(intents[1].digest, intents[1].canonical) is not second


def test_a_body_stands_for_a_kept_record_only_if_it_has_its_bytes() -> None:
    intent = samples.admission_request(1).intent
    kept = DecodedAdmissions()
    kept.keep(intent)
    assert kept.read(intent.canonical) is intent
    other = samples.admission_request(2).intent
    found = kept.read(other.canonical)
    assert (found, found is not intent, kept.read(other.canonical) is found) == (other, True, True)
    with pytest.raises(InvalidValueError):
        kept.read(intent.canonical.replace(b'"run_id"', b'"run_ib"', 1))
