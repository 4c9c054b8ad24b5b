"""Every column that load reads is held against the evidence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from sqlalchemy import BigInteger, DateTime, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import BYTEA

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import WaitId
from agentruns.errors import (
    AgentRunsError,
    AgentSubmissionNotFoundError,
    CorruptDataError,
)
from agentruns.store import tables

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]


#: A label, the table, and the condition that finds the row.
Row = tuple[str, Table, str]

#: Altered within their checks, these change nothing that is shown.
OUTSIDE: Final = {
    ("runs", "fencing_epoch"),
    ("runs", "lease_attempt_id"),
    ("runs", "lease_acquired_at"),
    ("runs", "lease_renewed_at"),
    ("runs", "lease_expires_at"),
    ("runs", "trace_context"),
    ("runs", "scheduler_ready_at"),
    ("runs", "scheduler_not_before"),
    ("run_waits", "kind"),
    ("run_waits", "due_at"),
    ("run_waits", "expires_at"),
    ("attached", "created_at"),
}


#: The place of a run's key, by whether the key came with the admission or later. Altered, the key stands for nothing,
#: which its holder alone can know.
LOST_BY_KEY: Final = {
    "admitted": {("admitted", "tenant_id"), ("admitted", "key_digest")},
    "attached": {("attached", "tenant_id"), ("attached", "key_digest")},
}


#: By the run's id nothing says that the run had this key.
LOST_BY_RUN: Final = {
    "admitted": {("admitted", "key_digest")},
    "attached": {("attached", name) for name in ("tenant_id", "run_id", "origin", "key_digest")},
}


def rows_read(story: Any) -> Iterator[Row]:
    """Name the rows that load reads whole: a label, the table, and the condition that finds the row."""
    state, ends = story.state, {1}
    yield "runs", tables.runs, "true"
    yield "admitted", tables.keys, "origin = 'admitted'"
    yield "attached", tables.keys, "origin = 'attached'"
    yield "agent_admissions", tables.admissions, "true"
    yield "run_checkpoints", tables.checkpoints, "superstep = 0"
    if state.superstep.value:
        yield "run_checkpoints", tables.checkpoints, f"superstep = {state.superstep}"
    assert state.checkpoint is not None
    assert state.head is not None
    assert state.lifecycle_sequence is not None
    ends |= {state.checkpoint.sequence.value, state.head.sequence.value, state.lifecycle_sequence.value}
    ends |= {row.outcome.sequence.value for row in story.commits if row.outcome is not None}
    for sequence in sorted(ends):
        yield "run_events", tables.events, f"sequence = {sequence}"
    yield "cancellation", tables.outcomes, "kind = 'cancellation'"
    yield "outcome", tables.outcomes, "kind = 'outcome'"
    yield "run_waits", tables.waits, "status = 'outstanding' AND kind = 'approval'"
    yield "run_waits", tables.waits, "status = 'outstanding' AND kind = 'sleep'"
    yield "run_quarantines", tables.quarantines, "true"


def altered(column: Any) -> str:
    """Write an expression that gives another value of the same type."""
    name = column.name
    if name == "tenant_id":
        return "'tenant-b'"
    other = {
        Uuid: f"'{WaitId.generate()}'::uuid",
        BYTEA: f"coalesce(set_byte({name}, 0, get_byte({name}, 0) # 1), '\\x01'::bytea)",
        BigInteger: f"coalesce({name} + 100, 100)",
        DateTime: f"coalesce({name} + interval '1 microsecond', clock_timestamp())",
        Text: f"coalesce({name} || 'x', 'x')",
    }
    return next(expression for kind, expression in other.items() if isinstance(column.type, kind))


def test_SUB_17_DB_06_each_altered_column_is_found(kit: Any, run: Run, tell: Any, story: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(as_owner=True) as engine, engine.connect() as connection:
            told = await tell(runs, story, is_attached=story in ("fresh", "succeeded"))
            look = Look(runs, connection, told, await runs.load(told.tenant_id, told.run_id))
            await connection.begin()
            await tell.permit_damage(connection)
            covered = 0
            for row in rows_read(told.story):
                for column in row[1].c:
                    covered += await look.alter(row, column)
            assert covered > 50

    run(work())


@frozen
class Look:
    """Alter one column after the other, and see what reading says.

    Attributes:
        shown: what it says of the run as it is.
    """

    runs: Any
    connection: Any
    told: Any
    shown: Any

    async def alter(self, row: Row, column: Any) -> bool:
        """Alter one column of one row, look, and undo it; tell whether there was such a row."""
        label, table, condition = row
        place, where = (label, column.name), f"{label}.{column.name} of {condition}"
        async with self.connection.begin_nested() as savepoint:
            change = f"{column.name} = {altered(column)} WHERE {condition}"
            done = await self.connection.execute(text(f"UPDATE agentruns.{table.name} SET {change}"))  # noqa: S608
            if done.rowcount and place in OUTSIDE:
                await self._is_harmless(where)
            elif done.rowcount:
                await self._is_found(place, where)
            await savepoint.rollback()
        return bool(done.rowcount)

    async def _load(self) -> Any:
        return await self.runs.load(self.told.tenant_id, self.told.run_id, session=self.connection)

    async def _load_by_key(self) -> Any:
        return await self.runs.load_by_key(self.told.tenant_id, self.told.key, session=self.connection)

    async def _submit(self, request: Any) -> Any:
        return await self.runs.submit(self.told.key, request, session=self.connection)

    async def _is_harmless(self, where: str) -> None:
        """Altered within its checks the column changes nothing; otherwise it is found."""
        answer = await answer_of(self._load())
        if isinstance(answer, CorruptDataError):
            assert answer.component.startswith("runs."), where
        else:
            assert answer == self.shown, where

    async def _is_found(self, place: tuple[str, str], where: str) -> None:
        if place in LOST_BY_RUN[self.told.origin]:
            assert await self._load() == self.shown, where
        else:
            await self._is_corrupt(self._load(), where)
        if place in LOST_BY_KEY[self.told.origin]:
            assert isinstance(await answer_of(self._load_by_key()), AgentSubmissionNotFoundError), where
            return
        await self._is_corrupt(self._load_by_key(), where)
        await self._is_corrupt(self._submit(self.told.request), where)
        if place[0] not in ("outcome", "cancellation"):  # how a run ended is verified after the conflict
            state = evolve(self.told.request.initial_state, data=BoundedJson.of({"other": 1}))
            await self._is_corrupt(self._submit(evolve(self.told.request, initial_state=state)), where)

    async def _is_corrupt(self, call: Coroutine[Any, Any, Any], where: str) -> None:
        answer = await answer_of(call)
        assert isinstance(answer, CorruptDataError), f"{where} was not found: {answer!r}"
        assert answer.component, where
        assert answer.tenant_id == self.told.tenant_id, where


async def answer_of(call: Coroutine[Any, Any, Any]) -> Any:
    """Give what a call returns or raises."""
    try:
        return await call
    except AgentRunsError as error:
        return error
