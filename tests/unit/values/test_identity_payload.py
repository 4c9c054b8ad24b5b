"""Identities and payload envelopes."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.identity import (
    ArtifactReference,
    CapabilityIdentity,
    CapabilityReference,
    GraphReference,
    Modality,
    PrincipalIdentity,
    SchemaReference,
)
from agentruns.domain.ids import ArtifactId, RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import ByteCount
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import CapabilityName, JournalEventKind, SubjectId, TenantId, Version
from agentruns.domain.uris import IssuerId, SchemaId
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import InvalidValueError

ID = "0198c0de-0000-7000-8000-00000000000"


def principal(issuer: str = "https://a.example", subject: str = "somebody") -> PrincipalIdentity:
    return PrincipalIdentity(issuer=IssuerId(issuer), subject=SubjectId(subject))


def capability(
    name: str = "sample", version: str = "1.0.0", owner: PrincipalIdentity | None = None
) -> CapabilityIdentity:
    return CapabilityIdentity(
        owner=owner or principal(),
        capability=CapabilityReference(name=CapabilityName(name), version=Version(version)),
    )


SCHEMA = SchemaReference(id=SchemaId("https://a.example/s"), version=Version("1.0.0"), digest=plain_digest(b"{}"))
GRAPH = GraphReference(identity=capability(), definition_digest=plain_digest(b"[]"), state_schema=SCHEMA)


def artifact(**changes: Any) -> ArtifactReference:
    members: dict[str, Any] = {
        "tenant_id": TenantId("tenant-a"),
        "run_id": RunId(ID + "1"),
        "artifact_id": ArtifactId(ID + "2"),
        "media_type": "image/svg+xml",
        "modality": Modality.IMAGE,
        "size": ByteCount(5),
        "digest": plain_digest(b"bytes"),
        "principal": principal(),
        "capability": capability(),
    }
    return ArtifactReference(**{**members, **changes})


def test_capability_identities_are_ordered_by_owner_name_and_version() -> None:
    late = principal(issuer="https://b.example", subject="a")
    ordered = [
        capability("a", "1.9.0"),
        capability("a", "1.10.0"),
        capability("b", "0.0.1"),
        capability("a", "0.0.1", principal(subject="somebody-else")),
        capability("a", "0.0.1", late),
    ]
    assert sorted([ordered[at] for at in (3, 1, 4, 0, 2)]) == ordered
    assert principal() < principal(subject="somebody2") < late


def test_a_principal_does_not_show_its_subject() -> None:
    shown = repr(artifact())
    assert "somebody" not in shown
    assert "PrincipalIdentity(issuer=IssuerId('https://a.example'), subject=SubjectId(redacted))" in shown


@pytest.mark.parametrize(
    "record", [principal(), capability(), SCHEMA, GRAPH, artifact()], ids=lambda r: type(r).__name__
)
def test_identities_round_trip(record: Any) -> None:
    assert from_wire(to_wire(record), type(record)) == record
    assert decode(encode(record), type(record)) == record
    with pytest.raises(InvalidValueError):
        from_wire({**to_wire(record), "more": "x"}, type(record))  # type: ignore[dict-item]  # an object


def test_a_graph_reference_has_a_fixed_wire_form() -> None:
    assert to_wire(GRAPH) == {
        "identity": {
            "owner": {"issuer": "https://a.example", "subject": "somebody"},
            "capability": {"name": "sample", "version": "1.0.0"},
        },
        "definition_digest": "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
        "state_schema": {
            "id": "https://a.example/s",
            "version": "1.0.0",
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        },
    }


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (principal(), {"subject": "somebody"}),
        (capability(), {"owner": None}),
        (capability().capability, {"version": "1.0.0"}),
        (SCHEMA, {"digest": b""}),
        (GRAPH, {"state_schema": GRAPH}),
        (artifact(), {"size": 5}),
        (artifact(), {"media_type": b"text/plain"}),
        (artifact(), {"modality": "image"}),
    ],
    ids=repr,
)
def test_members_have_their_class(record: Any, change: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError) as refused:
        evolve(record, **change)
    assert (refused.value.reason, refused.value.path) == ("wrong_type", tuple(change))


@pytest.mark.parametrize("media_type", ["a/b", "application/vnd.x+json", "x/" + "y" * 125])
def test_media_types(media_type: str) -> None:
    assert artifact(media_type=media_type).media_type == media_type


@pytest.mark.parametrize(
    "media_type", ["", "a", "/b", "a/", "a/b/c", "Text/plain", "text/plain; charset=utf-8", "a/b\n", "x/" + "y" * 126]
)
def test_other_media_types_are_refused(media_type: str) -> None:
    with pytest.raises(InvalidValueError, match="invalid_media_type"):
        artifact(media_type=media_type)


def test_the_modalities() -> None:
    assert [each.value for each in Modality] == ["text", "image", "audio", "video", "document", "data"]


def payload(data: BoundedJson) -> JournalPayload:
    return JournalPayload(schema=SCHEMA, kind=JournalEventKind("note"), data=data)


def test_a_payload_is_an_envelope_with_a_plain_digest() -> None:
    made = payload(BoundedJson.of({"canary": [1.5]}))
    assert made.canonical == (
        b'{"data":{"canary":[1.5]},"kind":"note","schema":{"digest":"sha256:'
        b'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","id":"https://a.example/s",'
        b'"version":"1.0.0"}}'
    )
    assert made.digest == plain_digest(made.canonical)
    assert decode(made.canonical, JournalPayload) == made
    assert from_wire(to_wire(made), JournalPayload) == made
    assert "canary" not in repr(made)


def test_an_envelope_has_at_most_two_mebibytes() -> None:
    shell = len(payload(BoundedJson.of("")).canonical)
    text = "x" * 1_000_000
    rest = 2 * 1024 * 1024 - shell - len('["","",""]') + len('""') - len(text) * 2
    largest = payload(BoundedJson.of([text, text, "x" * rest], JsonLimits.MAXIMUM))
    assert len(largest.canonical) == 2 * 1024 * 1024
    with pytest.raises(InvalidValueError, match="too_large"):
        payload(BoundedJson.of([text, text, "x" * (rest + 1)], JsonLimits.MAXIMUM))


def test_the_data_of_a_payload_may_reach_the_maximum_limits() -> None:
    deep = b"[" * 64 + b"]" * 64
    tree = to_wire(payload(BoundedJson.parse(deep, JsonLimits.MAXIMUM)))
    assert from_wire(tree, JournalPayload).data.depth == 64
