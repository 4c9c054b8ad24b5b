"""Waits: their two forms, their registration and their records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
import rfc8785

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import WaitId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import (
    AnyNodeWait,
    InterruptKind,
    InterruptRegistration,
    InterruptWait,
    NodeWait,
    TimerKind,
    TimerRegistration,
    TimerWait,
    WaitClass,
    WaitResolution,
    WaitResolver,
    check_batch,
    read_registration,
)
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import InvalidJsonError, InvalidValueError
from agentruns.testing.samples import principal, sample_id, schema_reference

NOW = Timestamp.parse("2026-01-02T03:04:05.000006Z")
WAIT = sample_id(WaitId, 1)


def request(data: Any = None) -> JournalPayload:
    return JournalPayload(
        schema=schema_reference("question"),
        kind=JournalEventKind("question"),
        data=BoundedJson.of({"amount": 5} if data is None else data, JsonLimits.MAXIMUM),
    )


def refusal(make: Any, **members: Any) -> tuple[str, str]:
    with pytest.raises(InvalidValueError) as caught:
        make(**members)
    return caught.value.type_name, caught.value.reason


def test_an_interrupt_has_defaults() -> None:
    wait = NodeWait.interrupt("approval", request=request())
    assert wait.kind is InterruptKind.APPROVAL
    assert wait.action_digest == request().digest
    assert (wait.principal, wait.scopes, wait.expires_at, wait.expires_in) == (None, ScopeSet(), None, None)
    assert wait.wait_id != NodeWait.interrupt("approval", request=request()).wait_id
    assert wait.never_expires


def test_an_interrupt_says_who_may_resolve_it() -> None:
    wait = NodeWait.interrupt(
        InterruptKind.INPUT,
        request=request(),
        action_digest=plain_digest(b"action"),
        principal=principal(),
        scopes=["b", "a"],
        expires_in=timedelta(days=2),
        id=WAIT,
    )
    assert wait == InterruptWait(
        wait_id=WAIT,
        kind=InterruptKind.INPUT,
        request=request(),
        action_digest=plain_digest(b"action"),
        principal=principal(),
        scopes=ScopeSet.of("a", "b"),
        expires_in=DurationMillis(172_800_000),
    )
    assert NodeWait.interrupt("input", request=request(), scopes=ScopeSet.of("a")).scopes == ScopeSet.of("a")
    assert not wait.never_expires


def test_a_timer_is_absolute_or_relative() -> None:
    relative = NodeWait.timer(due_in=timedelta(seconds=30), id=WAIT)
    assert relative == TimerWait(wait_id=WAIT, kind=TimerKind.SLEEP, due_in=DurationMillis(30_000))
    aware = datetime(2026, 1, 2, 4, 4, 5, 6, tzinfo=timezone(timedelta(hours=1)))
    absolute = NodeWait.timer(due_at=aware, kind="retry_backoff", id=WAIT)
    assert absolute == TimerWait(wait_id=WAIT, kind=TimerKind.RETRY_BACKOFF, due_at=NOW)
    assert NodeWait.timer(due_at=NOW).wait_id != NodeWait.timer(due_at=NOW).wait_id


def test_what_no_wait_is() -> None:
    naive = datetime(2026, 1, 2)  # noqa: DTZ001  # what is refused
    assert refusal(NodeWait.timer) == ("TimerWait", "missing_instant")
    assert refusal(NodeWait.timer, due_at=NOW, due_in=timedelta(0)) == ("TimerWait", "conflicting_instants")
    assert refusal(NodeWait.timer, due_at=naive) == ("Timestamp", "naive")
    assert refusal(NodeWait.timer, due_in=timedelta(microseconds=1)) == ("DurationMillis", "invalid_format")
    assert refusal(NodeWait.timer, due_in=timedelta(-1)) == ("DurationMillis", "out_of_range")
    assert refusal(NodeWait.timer, due_at=NOW, kind="nap") == ("TimerKind", "unknown_kind")
    assert refusal(NodeWait.timer, due_at=NOW, id="x") == ("TimerWait", "wrong_type")
    both = {"expires_at": NOW, "expires_in": timedelta(1)}
    assert refusal(NodeWait.interrupt, kind="input", request=request(), **both) == (
        "InterruptWait",
        "conflicting_instants",
    )
    assert refusal(NodeWait.interrupt, kind="sleep", request=request()) == ("InterruptKind", "unknown_kind")


def test_the_wire_form_inside_a_result() -> None:
    wait = NodeWait.interrupt("approval", request=request(), expires_in=timedelta(seconds=1), id=WAIT)
    tree = {
        "class": "interrupt",
        "kind": "approval",
        "wait_id": str(WAIT),
        "request": to_wire(request()),
        "action_digest": str(request().digest),
        "scopes": [],
        "expires_in": "1000",
    }
    assert to_wire(wait) == tree
    assert encode(wait) == rfc8785.dumps(tree)
    assert from_wire(tree, AnyNodeWait) == wait
    timer = NodeWait.timer(due_in=timedelta(seconds=1), id=WAIT)
    assert to_wire(timer) == {"class": "timer", "kind": "sleep", "wait_id": str(WAIT), "due_in": "1000"}


def test_a_relative_interrupt_becomes_absolute() -> None:
    wait = NodeWait.interrupt(
        "reconciliation",
        request=request(),
        principal=principal(),
        scopes=["a"],
        expires_in=timedelta(seconds=2),
        id=WAIT,
    )
    registration = wait.registered_at(NOW)
    assert registration == InterruptRegistration(
        wait_id=WAIT,
        kind=InterruptKind.RECONCILIATION,
        request=request(),
        action_digest=request().digest,
        principal=principal(),
        scopes=ScopeSet.of("a"),
        expires_at=Timestamp.parse("2026-01-02T03:04:07.000006Z"),
    )
    assert registration.wait_class is WaitClass.INTERRUPT
    assert NodeWait.interrupt("input", request=request()).registered_at(NOW).expires_at is None
    stated = NodeWait.interrupt("input", request=request(), expires_at=NOW)
    assert stated.registered_at(Timestamp.STORED_MAX).expires_at == NOW


@pytest.mark.parametrize(
    ("wait", "due_at"),
    [
        (NodeWait.timer(due_in=timedelta(0)), NOW),
        (NodeWait.timer(due_in=timedelta(milliseconds=1)), Timestamp(NOW.micros + 1000)),
        (NodeWait.timer(due_at=Timestamp(1)), Timestamp(1)),
        (NodeWait.timer(due_at=Timestamp.MIN), Timestamp.STORED_MIN),
        (NodeWait.timer(due_at=datetime(1, 1, 1, tzinfo=UTC)), Timestamp.STORED_MIN),
        (NodeWait.timer(due_at=Timestamp.MAX), Timestamp.STORED_MAX),
        (TimerWait(wait_id=WAIT, kind=TimerKind.SLEEP, due_in=DurationMillis(2**63 - 1)), Timestamp.STORED_MAX),
    ],
)
def test_no_wait_is_refused_for_its_instant(wait: TimerWait, due_at: Timestamp) -> None:
    registration = wait.registered_at(NOW)
    assert registration == TimerRegistration(wait_id=wait.wait_id, kind=TimerKind.SLEEP, due_at=due_at)
    assert registration.wait_class is WaitClass.TIMER


def test_a_registration_is_a_body() -> None:
    registration = NodeWait.timer(due_at=NOW, id=WAIT).registered_at(NOW)
    body = rfc8785.dumps({"class": "timer", "kind": "sleep", "wait_id": str(WAIT), "due_at": str(NOW)})
    assert registration.canonical == body
    assert registration.digest.hex == sha256(b"agentruns/wait/v1\0" + body).hexdigest()
    assert read_registration(body) == registration
    interrupt = NodeWait.interrupt("input", request=request(), expires_at=NOW, id=WAIT).registered_at(NOW)
    assert read_registration(interrupt.canonical) == interrupt
    assert to_wire(interrupt) == {
        "class": "interrupt",
        "kind": "input",
        "wait_id": str(WAIT),
        "request": to_wire(request()),
        "action_digest": str(request().digest),
        "scopes": [],
        "expires_at": str(NOW),
    }


def test_a_relative_wait_is_no_registration() -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_registration(encode(NodeWait.timer(due_in=timedelta(1))))
    assert caught.value.reason == "missing_member"
    with pytest.raises(InvalidJsonError):
        read_registration(b"{} ")


@pytest.mark.parametrize("instant", [Timestamp.MIN, Timestamp.MAX])
def test_a_registration_fits_into_a_column(instant: Timestamp) -> None:
    assert refusal(TimerRegistration, wait_id=WAIT, kind=TimerKind.SLEEP, due_at=instant) == (
        "TimerRegistration",
        "out_of_range",
    )
    members = {"request": request(), "action_digest": plain_digest(b""), "scopes": ScopeSet()}
    assert refusal(InterruptRegistration, wait_id=WAIT, kind=InterruptKind.INPUT, expires_at=instant, **members) == (
        "InterruptRegistration",
        "out_of_range",
    )


def test_a_resolution_is_a_body() -> None:
    resolver = WaitResolver(principal=principal(), scopes=ScopeSet.of("a"))
    resolution = WaitResolution(resolver=resolver, payload=request({"ok": True}))
    body = rfc8785.dumps(
        {
            "resolver": {"principal": to_wire(principal()), "scopes": ["a"]},
            "payload": to_wire(request({"ok": True})),
        }
    )
    assert resolution.canonical == body
    assert resolution.digest.hex == sha256(b"agentruns/wait-resolution/v1\0" + body).hexdigest()
    assert decode(body, WaitResolution) == resolution
    assert refusal(WaitResolution, resolver=principal(), payload=request()) == ("WaitResolution", "wrong_type")
    assert refusal(WaitResolver, principal=principal(), scopes=()) == ("WaitResolver", "wrong_type")


def test_a_batch_is_1_to_64_waits_with_distinct_ids() -> None:
    waits = [NodeWait.timer(due_at=NOW) for _ in range(65)]
    check_batch(waits[:1])
    check_batch(waits[:64])
    for batch in ([], waits, [waits[0], waits[0]]):
        assert refusal(check_batch, waits=batch) == ("NodeResult", "wait_batch_invalid")


def test_a_wait_does_not_show_what_is_asked() -> None:
    wait = NodeWait.interrupt("input", request=request({"secret": "canary"}))
    assert "canary" not in repr(wait)
    assert "canary" not in repr(wait.registered_at(NOW))
