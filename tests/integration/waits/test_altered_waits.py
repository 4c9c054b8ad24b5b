"""A drive believes the row of a wait only where the events say the same of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.domain.waits import NodeWait
from agentruns.errors import RunQuarantinedError
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.tampering import superuser

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("damage", "component"),
    [
        # Admission, start, result and the barrier that waits are 1 to 4, the answers 5 and 6.
        ("settled_sequence = 6 WHERE settled_sequence = 5", "run_waits.settled_sequence"),
        ("settled_sequence = 5 WHERE settled_sequence = 6", "run_waits.settled_sequence"),
        ("settled_sequence = 3 WHERE settled_sequence = 5", "run_waits.settled_sequence"),
        ("settled_sequence = 99 WHERE settled_sequence = 6", "run_waits.settled_sequence"),
        ("settled_sequence = 11 - settled_sequence", "run_waits.settled_sequence"),
        ("status = 'fired' WHERE settled_sequence = 5", "run_waits.status"),
        ("resolution_digest = digest WHERE settled_sequence = 5", "body"),
        ("wait_id = '00000000-0000-4000-8000-000000000000' WHERE settled_sequence = 5", "row"),
        ("due_at = 'infinity' WHERE settled_sequence = 5", "run_waits.due_at"),
        ("expires_at = '-infinity' WHERE settled_sequence = 5", "run_waits.expires_at"),
        ("registration = '\\x00' WHERE settled_sequence = 5", "body"),
        ("resolution = '\\x00' WHERE settled_sequence = 5", "body"),
    ],
)
def test_a_settled_wait_that_is_unlike_its_events_isolates_the_run(
    in_world: InWorld, sleeper: Any, payload: Any, damage: str, component: str
) -> None:
    sleeping = sleeper(lambda: tuple(NodeWait.interrupt("approval", request=payload(n)) for n in range(2)))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        for wait in await service.outstanding(TENANT, run_id):
            await service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id))
        rows = await world.rows("SELECT settled_sequence FROM agentruns.run_waits ORDER BY 1")
        assert [tuple(row) for row in rows] == [(5,), (6,)]
        async with superuser(world.url) as connection:
            await connection.execute(text(f"UPDATE agentruns.run_waits SET {damage}"))  # noqa: S608 - our own words
            with pytest.raises(RunQuarantinedError):
                await world.driven(run_id)
        (record,) = await world.rows("SELECT component FROM agentruns.run_quarantines")
        assert record.component == component
        assert sleeping.read == []

    in_world(work, sleeping.graph(), lease=LONG, reuse_verified_prefix=False)
