"""What values, clocks and settings a submission meets between an application and the database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.submission import DurableAgentAdmissionRequest, MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import encode, from_json, to_json
from agentruns.errors import AgentSubmissionConflictError, InvalidJsonError, InvalidOptionError, InvalidValueError
from agentruns.runtime.replay import RunReader
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
TOKYO = timezone(timedelta(hours=9))


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


@pytest.fixture
def owner(server: Any, kit: Any) -> str:
    """The URL of the test's database for a superuser."""
    url: str = server.url(make_url(kit.url).database)
    return url


async def execute(url: str, *statements: str) -> Any:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        for statement in statements:
            result = await connection.execute(text(statement))
        found = result.all() if result.returns_rows else []
    await engine.dispose()
    return found


# --- clocks ---------------------------------------------------------------------------------------------------------


def test_C2_an_admission_has_the_time_of_its_statement_not_of_the_transaction(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.begin() as connection:
            began = (await connection.execute(text("SELECT now()"))).scalar_one()
            after = (await connection.execute(text("SELECT clock_timestamp() FROM pg_sleep(0.3)"))).scalar_one()
            admitted = await runs.submit(fresh(), kit.request(), session=connection)
            until = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
            at = admitted.snapshot.admitted_at.to_datetime()
            assert began + timedelta(seconds=0.3) <= after <= at <= until

    run(work())


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    """Let the process live in a time zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


def test_C4_an_instant_is_the_same_in_every_time_zone(kit: Any, owner: str, run: Run) -> None:
    with pytest.raises(InvalidValueError) as naive:
        Timestamp.from_datetime(datetime(2090, 1, 1))  # noqa: DTZ001
    assert naive.value.reason == "naive"
    deadline = Timestamp.from_datetime(datetime(2090, 1, 1, 9, tzinfo=TOKYO))
    assert str(deadline) == "2090-01-01T00:00:00.000000Z"

    async def work() -> None:
        name = make_url(kit.url).database
        await execute(owner, f"ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'")
        async with kit.runs() as runs, kit.engine() as engine:
            key, before = fresh(), datetime.now(UTC)
            admitted = await runs.submit(key, kit.request(deadline=deadline))
            async with engine.begin() as connection:
                again = await runs.submit(key, kit.request(deadline=deadline), session=connection)
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, admitted.snapshot)
            at = admitted.snapshot.admitted_at.to_datetime()
            assert at.tzinfo is UTC
            assert before - timedelta(seconds=1) <= at <= datetime.now(UTC) + timedelta(seconds=1)
            assert str(admitted.snapshot.changed_at).endswith("Z")
        stored = await execute(
            owner, "SELECT agent_deadline_at, current_setting('timezone') AS zone FROM agentruns.runs"
        )
        assert [tuple(row) for row in stored] == [(datetime(2090, 1, 1, tzinfo=UTC), "Asia/Tokyo")]

    with local_zone("America/New_York"):
        assert os.environ["TZ"] == time.tzname[0] or time.timezone == 5 * 3600
        run(work())


# --- connections ----------------------------------------------------------------------------------------------------


def test_I2_nothing_needs_a_prepared_statement_that_outlives_its_transaction(kit: Any, owner: str, run: Run) -> None:
    """The recipe for poolers: no cache on either side, fresh names, no pool in the application."""
    arguments = {
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"__{uuid4()}__",
    }

    async def work() -> None:
        uncached = {"statement_cache_size": "0", "prepared_statement_cache_size": "0", "timeout": "30"}
        url = make_url(kit.url).update_query_dict(uncached)
        async with (
            AgentRunStore(url) as store,
            kit.engine(poolclass=NullPool, connect_args=arguments) as engine,
        ):
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            own_sent, joined_sent = kit.sent(store._engine), kit.sent(engine)
            key, joined = fresh(), fresh()
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED
            for outcome in (COMMITTED, IDEMPOTENT):
                async with engine.begin() as connection:
                    assert (await runs.submit(joined, kit.request(), session=connection)).outcome is outcome
                    assert (await runs.submit(key, kit.request(), session=connection)).outcome is IDEMPOTENT
            assert (await runs.load_by_key(kit.request().tenant_id, joined)).revision.value == 1
            for sent in (own_sent, joined_sent):
                words = {statement.split()[0].upper() for statement in sent}
                assert "WITH" in words <= {"WITH", "SELECT"}
            here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            locks = await execute(owner, f"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND {here}")  # noqa: S608
            assert locks == []

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


@pytest.mark.parametrize("name", ["statement_cache_size", "prepared_statement_cache_size", "timeout"])
@pytest.mark.parametrize("value", ["", "-1", "1.5", "many", "\u0663", "9" * 5_000])
def test_I2_a_parameter_that_is_no_number_is_refused_with_the_store(name: str, value: str) -> None:
    url = make_url("postgresql://somebody@localhost/nothing").update_query_dict({name: value})
    with pytest.raises(InvalidOptionError) as refused:
        AgentRunStore(url)
    assert (refused.value.option, refused.value.value) == ("database_url", name)


def test_I3_tables_of_the_application_with_our_names_are_left_alone(kit: Any, owner: str, run: Run) -> None:
    async def work() -> None:
        name = make_url(kit.url).database
        decoys = [f"CREATE TABLE public.{table} (nothing integer)" for table in ONE_RUN]
        await execute(owner, *decoys, f"ALTER DATABASE {name} SET search_path = ''")
        async with kit.runs() as runs, kit.engine() as engine:
            for path in ("''", "public"):
                key = fresh()
                async with engine.begin() as connection:
                    await connection.execute(text(f"SET LOCAL search_path = {path}"))
                    assert (await runs.submit(key, kit.request(), session=connection)).outcome is COMMITTED
                assert (await runs.submit(key, kit.request())).outcome is IDEMPOTENT
        for table in ONE_RUN:
            assert await execute(owner, f"SELECT * FROM public.{table}") == []  # noqa: S608

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


# --- JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1e16", "9007199254740992.0", "1e20", "9007199254740992", "-9007199254740993", "1e400"]
)
def test_K4_K5_a_number_that_would_not_come_back_is_refused_at_its_place(kit: Any, text: str) -> None:
    reason = "non_finite_number" if text == "1e400" else "integer_out_of_range"
    number = json.loads(text)
    for place in ("input", "state", "evidence"):
        with pytest.raises(InvalidJsonError) as refused:
            kit.request(**{place: {"x": [number]}})
        assert (refused.value.reason, refused.value.pointer) == (reason, "/x/0")
        assert text not in str(refused.value)
    with pytest.raises(InvalidJsonError) as read:
        BoundedJson.parse(f'{{"x":[{text}]}}')
    assert read.value.reason == reason


def test_K4_the_numbers_that_come_back_are_read_by_another_process_with_the_same_digests(
    kit: Any, owner: str, run: Run
) -> None:
    numbers = [1e21, 1.7976931348623157e308, 5e-324, 2**53 - 1, -(2**53) + 1, 0.1, -1e-7]

    async def work() -> None:
        key, values = fresh(), {"x": numbers}
        request = kit.request(input=values, state=values, evidence=values)
        async with kit.runs() as runs:
            first = await runs.submit(key, request)
        written = from_json(to_json(request), DurableAgentAdmissionRequest)
        assert written == request
        # Nothing is kept from the first store: all is read and verified from bytes.
        async with kit.runs(publish=False, executables=kit.executables_of()) as runs:
            assert await runs.load_by_key(request.tenant_id, key) == first.snapshot
            again = await runs.submit(key, written)
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, first.snapshot)
            other = kit.request(input={"x": [*numbers[:-1], -2e-7]}, state=values, evidence=values)
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, other)
        (stored,) = await execute(owner, "SELECT state FROM agentruns.run_checkpoints")
        assert stored.state == request.initial_state.data.data
        assert json.loads(stored.state)["x"] == numbers

    run(work())
    assert run(kit.rows()) == ONE_RUN


@pytest.mark.parametrize("spelling", ['"status":1,"status":1', '"status":1,"st\\u0061tus":1'])
def test_K7_a_name_that_occurs_twice_is_refused_by_every_way_in_for_text(kit: Any, spelling: str) -> None:
    for document in (f"{{{spelling}}}", f'{{"a":[{{{spelling}}}]}}'):
        with pytest.raises(InvalidJsonError) as refused:
            BoundedJson.parse(document)
        assert refused.value.reason == "duplicate_key"
        with pytest.raises(InvalidJsonError) as stored:
            BoundedJson.read(document.encode())
        assert stored.value.reason in {"duplicate_key", "not_canonical"}
    body = to_json(kit.request())
    member = b'"admission_event_id":'
    assert body.count(member) == 1
    twice = body.replace(member, member + b"1," + member)
    with pytest.raises(InvalidJsonError) as wire:
        from_json(twice, DurableAgentAdmissionRequest)
    assert wire.value.reason == "duplicate_key"


def test_K11_what_is_changed_after_the_request_was_made_changes_nothing(kit: Any, owner: str, run: Run) -> None:
    async def work() -> None:
        given, state = {"list": [1, {"deep": "a"}]}, {"list": [2, {"deep": "b"}]}
        request = kit.request(input=given, state=state)
        before, digest = encode(request.intent), request.submission_digest
        for tree in (given, state):
            tree["list"].append("late")
            tree["list"][1]["deep"] = "late"  # type: ignore[index]
            tree["more"] = ["late"]
        shown: Any = request.initial_state.data.value
        shown["list"].append("later still")
        assert (encode(request.intent), request.submission_digest) == (before, digest)
        key = fresh()
        async with kit.runs() as runs:
            await runs.submit(key, request)
            same = kit.request(input={"list": [1, {"deep": "a"}]}, state={"list": [2, {"deep": "b"}]})
            assert (await runs.submit(key, same)).outcome is IDEMPOTENT
        (stored,) = await execute(owner, "SELECT state FROM agentruns.run_checkpoints")
        assert stored.state == b'{"list":[2,{"deep":"b"}]}'

    run(work())


def test_G6_nothing_is_added_to_a_state_after_its_admission(kit: Any, owner: str, run: Run) -> None:
    """Its items have no ids, and get none; another process reads the same bytes."""
    given = {"items": [{"name": "a"}, {"name": "b"}, {}]}

    async def work() -> None:
        key, request = fresh(), kit.request(state=given)
        async with kit.runs() as runs:
            admitted = await runs.submit(key, request)
        found = []
        for executables in (kit.executables, kit.executables_of()):
            async with kit.runs(publish=False, executables=executables) as runs:
                assert await runs.load_by_key(request.tenant_id, key) == admitted.snapshot
                replayed = await RunReader(runs._store, executables).read(request.tenant_id, request.run_id)
                found.append(replayed.state)
        assert found[0] == found[1]
        (stored,) = await execute(owner, "SELECT state, digest FROM agentruns.run_checkpoints")
        assert stored.state == b'{"items":[{"name":"a"},{"name":"b"},{}]}'

    run(work())


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"n": 1}, {"n": 1.0}, True),
        ({"n": 0}, {"n": -0.0}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"\ufb33": 1, "\U0001f600": 2}, {"\U0001f600": 2, "\ufb33": 1}, True),
        ({"s": "\u00e9"}, {"s": "e\u0301"}, False),
        ({"\u00e9": 1}, {"e\u0301": 1}, False),
        ({"b": True}, {"b": 1}, False),
        ({"b": False}, {"b": 0}, False),
        ({"n": None}, {}, False),
        ({"s": "a\0b"}, {"s": "a b"}, False),
        ({"s": "a\0b"}, {"s": "a\0b"}, True),
    ],
)
def test_K12_equal_values_are_one_submission_and_others_a_conflict(
    kit: Any, run: Run, first: Any, second: Any, *, is_same: bool
) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            for place in ("input", "state", "evidence"):
                key = fresh()
                admitted = await runs.submit(key, kit.request(**{place: first}))
                other = kit.request(**{place: second})
                if is_same:
                    again = await runs.submit(key, other)
                    assert (again.outcome, again.snapshot) == (IDEMPOTENT, admitted.snapshot)
                else:
                    with pytest.raises(AgentSubmissionConflictError):
                        await runs.submit(key, other)

    run(work())
