from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.digests import Digest, DigestPurpose, digest_body, plain_digest
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.ids import CheckpointId, EventId, RunId, WaitId
from agentruns.domain.ledger.checkpoint import Checkpoint, ready_column, state_digest
from agentruns.domain.ledger.data import TimerFired
from agentruns.domain.ledger.event import Event, JournalHead
from agentruns.domain.numbers import JournalSequence, RunRevision, Superstep
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError

EMPTY = plain_digest(b"{}")
STAMP = Timestamp.parse("2026-01-02T03:04:05.000006Z")
FIRED = TimerFired(wait_id=WaitId("01980000-0000-7000-8000-000000000001"), revision=RunRevision(3))


def stored(**members: Any) -> Event:
    event = Event(
        tenant_id=TenantId("tenant-a"),
        run_id=RunId("01980000-0000-7000-8000-000000000003"),
        sequence=JournalSequence(12),
        event_id=EventId("01980000-0000-7000-8000-000000000002"),
        recorded_at=STAMP,
        epoch=0,
        kind=JournalEventKind("graph-timer-fired"),
        schema_digest=EMPTY,
        data=FIRED.encode(),
        digest=Digest.parse("sha256:da4cd451290c4da5f528b96a6d683fed5bde0c96420eba8c67af5b11dd77a0b9"),
    )
    return evolve(event, **members)


def head(digest: Digest = EMPTY) -> JournalHead:
    return JournalHead(sequence=JournalSequence(11), digest=digest, recorded_at=STAMP)


def test_golden_envelope() -> None:
    assert stored().envelope == (
        b'{"data":{"operation":"graph_timer_fired","revision":"3","wait_id":"01980000-0000-7000-8000-000000000001"},'
        b'"epoch":"0","event_id":"01980000-0000-7000-8000-000000000002","kind":"graph-timer-fired",'
        b'"recorded_at":"2026-01-02T03:04:05.000006Z","run_id":"01980000-0000-7000-8000-000000000003",'
        b'"schema_digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",'
        b'"sequence":"12","tenant_id":"tenant-a"}'
    )
    assert len(stored().envelope) == 416
    assert stored().envelope == canonical_bytes(json.loads(stored().envelope))


def test_golden_digest_after_a_previous_event() -> None:
    assert stored().follows(head())
    assert not stored().follows(head(plain_digest(b"[]")))
    assert not stored().follows(None)
    assert not stored(epoch=1).follows(head())


def test_golden_digest_of_a_first_event() -> None:
    event = Event(
        tenant_id=TenantId("tenant-a"),
        run_id=RunId("0198c0de-0000-7000-8000-000000000001"),
        sequence=JournalSequence(1),
        event_id=EventId("0198c0de-0000-7000-8000-000000000002"),
        recorded_at=STAMP,
        epoch=0,
        kind=JournalEventKind("x"),
        schema_digest=EMPTY,
        data=b"{}",
        digest=Digest.parse("sha256:01e66412ed32a074780252402194da25191fbf4d5966865d08cdde160f0ff4fb"),
    )
    assert event.follows(None)
    assert event.made_from is None
    assert event.head == JournalHead(sequence=JournalSequence(1), digest=event.digest, recorded_at=STAMP)


def test_following_chains_to_the_head_and_keeps_the_data() -> None:
    event = Event.following(
        head(),
        tenant_id=TenantId("tenant-a"),
        run_id=RunId("01980000-0000-7000-8000-000000000003"),
        event_id=EventId("01980000-0000-7000-8000-000000000002"),
        recorded_at=STAMP,
        epoch=0,
        data=FIRED,
    )
    assert event.sequence == JournalSequence(12)
    assert event.made_from is FIRED
    assert event.follows(head())
    assert event.digest == digest_body(DigestPurpose.EVENT, EMPTY.raw, event.envelope)
    assert event == stored(schema_digest=event.schema_digest, digest=event.digest)


@pytest.mark.parametrize("epoch", [1, 7])
def test_following_refuses_a_source_that_the_kind_does_not_allow(epoch: int) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Event.following(
            None,
            tenant_id=TenantId("tenant-a"),
            run_id=RunId("01980000-0000-7000-8000-000000000003"),
            event_id=EventId("01980000-0000-7000-8000-000000000002"),
            recorded_at=STAMP,
            epoch=epoch,
            data=FIRED,
        )
    assert (caught.value.type_name, caught.value.reason) == ("Event", "wrong_source")


def test_golden_checkpoint() -> None:
    checkpoint = Checkpoint.initial(
        CheckpointId("01980000-0000-7000-8000-000000000004"),
        graph_digest=EMPTY,
        entry_nodes=ReadyNodes.of("b", "a"),
        state_digest=state_digest(b"{}"),
    )
    assert str(checkpoint.state_digest) == "sha256:b1f0f802f1ddfde0d2b8148db293a6d86b67e375306c05bde132a24301fcdd45"
    assert str(checkpoint.digest) == "sha256:c9e5bfbafca2552594e934616697f5d193feb32965d53a3202253aaa2aba33d5"
    assert checkpoint.digest is checkpoint.digest
    assert checkpoint.preimage == canonical_bytes(json.loads(checkpoint.preimage))


def test_a_later_checkpoint_states_its_parent() -> None:
    checkpoint = Checkpoint(
        checkpoint_id=CheckpointId("01980000-0000-7000-8000-000000000004"),
        superstep=Superstep(1),
        graph_digest=EMPTY,
        parent_digest=EMPTY,
        ready_nodes=ReadyNodes(),
        state_digest=EMPTY,
    )
    assert json.loads(checkpoint.preimage) == {
        "checkpoint_id": "01980000-0000-7000-8000-000000000004",
        "graph_digest": str(EMPTY),
        "parent_digest": str(EMPTY),
        "ready_nodes": [],
        "state_digest": str(EMPTY),
        "superstep": "1",
    }
    assert checkpoint.preimage == canonical_bytes(json.loads(checkpoint.preimage))


def test_ready_column() -> None:
    assert ready_column(ReadyNodes()) == b"[]"
    assert ready_column(ReadyNodes.of("b", "a")) == b'["a","b"]'
