"""``agentruns runs cancel``: what it writes, what it answers, and what it keeps to itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId, FailureId, RunId
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.outcome import CancelledOutcome
from agentruns.domain.wire import decode, to_json
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, chain, open_world

Command = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

UNKNOWN = "01890000-0000-7000-8000-000000000000"
WHO = samples.principal("planted-subject")
BY = ("--principal", str(WHO.issuer), str(WHO.subject), "--reason", "a duplicate of ticket 12")
IDS = ("--event-id", str(EventId.generate()), "--failure-id", str(FailureId.generate()))


def finish(_context: Any) -> Finish:
    return Finish({})


GRAPH = chain(only=finish)


@pytest.fixture
def run_id(run: Run, owner_url: str) -> RunId:
    """A run that nobody drives."""

    async def admit() -> RunId:
        async with open_world(owner_url, GRAPH) as world:
            return await world.submitted()

    found: RunId = run(admit())
    return found


@pytest.fixture
def cancel(agentruns: Command, database_url: str, run_id: RunId) -> Command:
    """Cancel the run, or another one."""

    def call(*options: str, tenant: str = TENANT.text, target: str = "") -> Any:
        return agentruns("runs", "cancel", tenant, target or str(run_id), *options, url=database_url)

    return call


def error_of(ended: Any) -> tuple[int, str]:
    assert ended.out == ""
    return ended.code, json.loads(ended.err)["error"]["code"]


def stored_request(within: Within, url: str) -> CancellationRequest:
    def read(connection: Connection) -> bytes:
        found = connection.execute(text("SELECT body FROM agentruns.run_outcomes WHERE kind = 'cancellation'"))
        return bytes(found.scalar_one())

    return decode(within(url, read), CancellationRequest)


def test_the_reason_is_public_and_who_asked_stays_in_the_record(
    cancel: Command, run: Run, within: Within, owner_url: str, run_id: RunId
) -> None:
    ended = cancel(*BY, *IDS, "--format", "json")
    assert ended.code == 0
    assert ended.err == f"If the answer is lost, repeat this with {' '.join(IDS)}\n"
    assert json.loads(ended.out) == {
        "tenant_id": TENANT.text,
        "run_id": str(run_id),
        "event_id": IDS[1],
        "failure_id": IDS[3],
        "outcome": "committed",
        "status": "cancellation_requested",
        "revision": 2,
    }
    request = stored_request(within, owner_url)
    assert request.authority is not None
    assert (request.authority.principal, request.authority.reason) == (WHO, "a duplicate of ticket 12")

    async def confirm() -> None:
        async with open_world(owner_url, GRAPH) as world:
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
            snapshot = await world.loaded(run_id)
            assert b"planted" not in to_json(snapshot)
            assert isinstance(snapshot.outcome, CancelledOutcome)
            failure = snapshot.outcome.failure
            assert (failure.id, failure.code.text, failure.origin.text, failure.message) == (
                FailureId(IDS[3]),
                "operator.run.cancelled",
                "agentruns.operator",
                "a duplicate of ticket 12",
            )
            assert all(
                b"planted" not in bytes(row.data) for row in await world.rows("SELECT data FROM agentruns.run_events")
            )

    run(confirm())


def test_a_repeated_request_is_the_same_and_another_one_comes_too_late(cancel: Command) -> None:
    quiet = ("--format", "json", "--quiet")
    assert cancel(*BY, *IDS, *quiet).code == 0
    again = cancel(*BY, *IDS, *quiet)
    assert (again.code, again.err, json.loads(again.out)["outcome"]) == (0, "", "idempotent")
    other = ("--principal", str(WHO.issuer), "somebody-else", "--reason", BY[-1])
    assert error_of(cancel(*other, *IDS, *quiet)) == (4, "id_conflict")
    assert error_of(cancel(*BY[:-1], "another", *IDS, *quiet)) == (4, "id_conflict")
    assert error_of(cancel(*BY, *quiet)) == (4, "cancellation_conflict")


def test_a_run_that_is_over_or_unknown(cancel: Command, run: Run, owner_url: str, run_id: RunId) -> None:
    async def finished() -> None:
        async with open_world(owner_url, GRAPH) as world:
            await world.driven(run_id)

    run(finished())
    quiet = ("--format", "json", "--quiet")
    assert error_of(cancel(*BY, *quiet)) == (4, "run_not_runnable.terminal")
    assert error_of(cancel(*BY, *quiet, target=UNKNOWN)) == (3, "run_not_found")
    assert error_of(cancel(*BY, *quiet, tenant="other")) == (3, "run_not_found")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (BY[:3], "Missing option '--reason'."),
        (BY[3:], "Missing option '--principal'."),
        ((*BY, *IDS[:2]), "an earlier try is repeated with both of its ids: --event-id and --failure-id"),
        ((*BY, *IDS[2:]), "an earlier try is repeated with both of its ids: --event-id and --failure-id"),
        (
            ("--principal", "planted", "x", *BY[3:]),
            "Invalid value for '--principal': wanted an https URL of at most 512 characters (too_short)",
        ),
        (
            ("--principal", "https://i.example/", "pl\nanted", *BY[3:]),
            "Invalid value for '--principal': wanted 1 to 255 printable ASCII characters (invalid_byte)",
        ),
        (
            (*BY[:-1], "two\nlines"),
            "Invalid value for '--reason': wanted 1 to 1024 bytes of text on one line (invalid_format)",
        ),
        (
            (*BY, "--event-id", "planted", *IDS[2:]),
            f"Invalid value for '--event-id': wanted a UUID of version 7 in lower case, such as {UNKNOWN} (too_short)",
        ),
    ],
)
def test_wrong_usage_sends_nothing_and_says_what_was_wanted(
    agentruns: Command, options: tuple[str, ...], sentence: str
) -> None:
    ended = agentruns("runs", "cancel", "t", UNKNOWN, *options, url="postgresql://127.0.0.1:1/none")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == f"Error: {sentence}"
    assert "planted" not in ended.err


def test_the_ids_are_told_before_anything_is_sent(agentruns: Command) -> None:
    ended = agentruns("runs", "cancel", "t", UNKNOWN, *BY, url="postgresql://u:planted@127.0.0.1:1/none")
    told, error = ended.err.splitlines()
    assert told.startswith("If the answer is lost, repeat this with --event-id 0")
    assert (ended.code, ended.out) == (7, "")
    assert error == "Error: The database is not available (attempts=3): try again with the same key and ids"


def test_an_option_of_the_url_that_the_driver_does_not_know(agentruns: Command) -> None:
    url = "postgresql://u:planted@127.0.0.1/d?nonsense=planted"
    ended = agentruns("runs", "cancel", "t", UNKNOWN, *BY, "--quiet", url=url)
    assert (ended.code, ended.out) == (2, "")
    assert "planted" not in ended.err


def test_an_unmigrated_database(agentruns: Command, empty_database_url: str) -> None:
    ended = agentruns("runs", "cancel", "t", UNKNOWN, *BY, "--quiet", url=empty_database_url)
    assert ended.code == 6
