"""Who may have a run explained: whoever may read the tables, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.store.statements import explanations
from agentruns.store.transient import sqlstate_of
from agentruns.store.unit_of_work import UnitOfWork

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ASKED = {"of_tenant": "acme", "of_run": "01890000-0000-7000-8000-000000000000", "of_graph": None}


def explain(connection: Connection) -> int:
    """Send both statements, and count what they say of a run that is not there."""
    work, statements = UnitOfWork(connection), (explanations.observed(), explanations.conditions())
    return sum(len(work.execute(statement, ASKED).all()) for statement in statements)


@pytest.mark.parametrize(
    ("job", "is_permitted"),
    [("runtime", True), ("operator", True), ("evidence reader", True), ("reader", False), ("retention", False)],
)
def test_who_reads_the_tables_may_have_a_run_explained(granted: Any, run: Run, job: str, *, is_permitted: bool) -> None:
    async def work() -> int:
        async with create_async_engine(granted.url_of(job), poolclass=NullPool).connect() as connection:
            return await connection.run_sync(explain)

    if is_permitted:
        assert run(work()) == 1
        return
    with pytest.raises(ProgrammingError) as refused:
        run(work())
    assert sqlstate_of(refused.value) == "42501"
