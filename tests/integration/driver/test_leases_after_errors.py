"""Whatever a turn of a run raises, it is what was raised first, and the lease is gone or somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.errors import (
    CommitOutcomeUnknownError,
    EvidenceUnavailableError,
    ExecutableGraphUnavailableError,
    LeaseLostError,
    RunQuarantinedError,
    StoreUnavailableError,
)
from agentruns.runtime.agent_loop import DurableAgentLoop
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.evidence import LedgerEvidence
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.faults import WireProxy
from agentruns.testing.isolating import flip

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
OPTIONS = DurableGraphDriverOptions(lease_renewal_interval=LONG / 4)


class Fatal(BaseException):
    """What no driver may swallow."""


class Absent(LedgerEvidence):
    """Know nothing of what a run used."""

    def terminal(self, state: Any, output: Any) -> Any:  # noqa: ARG002 - as the protocol has it
        raise EvidenceUnavailableError(tenant_id=state.tenant_id, run_id=state.run_id, reason="usage")


async def fatal(_context: Any) -> None:
    raise Fatal


def loop_of(world: DriveWorld, *, executables: ExecutableGraphRegistry | None = None, evidence: Any = None) -> Any:
    return DurableAgentLoop(
        world.store,
        executables or world.executables,
        driver_options=OPTIONS,
        evidence=evidence,
        error_release_delay=timedelta(seconds=7),
    )


async def raises(world: DriveWorld, loop: Any, error: type[BaseException], during: Callable[[Any], Any]) -> None:
    """Run a turn, and hold what is left of its lease against what was raised."""
    run_id = await world.submitted()
    held = await world.claimed(run_id)
    await during(held)
    with pytest.raises(error) as raised:
        await loop.run(held, world.shutdown)
    assert type(raised.value) is error
    (row,) = await world.rows("SELECT lease_attempt_id::text AS owner, fencing_epoch FROM agentruns.runs")
    # Nobody's; or another owner's, under another epoch.
    assert (row.owner, row.fencing_epoch) in ((None, 1), (OTHER.text, 2))


OTHER = AttemptId.generate()


async def _nothing(_held: Any) -> None:
    """Leave everything as it is."""


@pytest.mark.parametrize("what", ["fatal", "graph", "evidence", "damage", "overtaken", "cancelled"])
def test_LIF_19_after_any_error_of_a_turn_its_lease_is_gone_or_somebody_elses(in_world: InWorld, what: str) -> None:
    async def work(world: DriveWorld) -> None:
        async def damage(held: Any) -> None:
            await flip(world, held.fence.run_id)

        async def overtake(held: Any) -> None:
            await world.store.supersede(TENANT, held.fence.run_id, OTHER)

        empty = ExecutableGraphRegistryBuilder(world.executables.schemas).build()
        cases: dict[str, tuple[Any, type[BaseException], Any]] = {
            "fatal": (loop_of(world), Fatal, _nothing),
            "graph": (loop_of(world, executables=empty), ExecutableGraphUnavailableError, _nothing),
            "evidence": (loop_of(world, evidence=Absent()), EvidenceUnavailableError, _nothing),
            "damage": (loop_of(world), RunQuarantinedError, damage),
            "overtaken": (loop_of(world), LeaseLostError, overtake),
        }
        if what in cases:
            await raises(world, *cases[what])
            return
        held = await world.claimed(await world.submitted())
        driving = asyncio.create_task(world.loop.run(held, world.shutdown))
        await world.until("graph-node-attempt-started")
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert [row.lease_attempt_id for row in await world.rows("SELECT lease_attempt_id FROM agentruns.runs")] == [
            None
        ]

    async def waits(_context: Any) -> None:
        await asyncio.Event().wait()

    node: Any = {"fatal": fatal, "cancelled": waits}.get(what, lambda _context: Finish({}))
    in_world(work, chain(a=node), lease=LONG)


def test_LIF_19_a_lease_that_cannot_be_given_back_ends_by_itself(behind_a_wire: Callable[..., None]) -> None:
    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        held = await world.claimed(await world.submitted())
        proxy.take_down()
        with pytest.raises((StoreUnavailableError, CommitOutcomeUnknownError)) as away:
            await world.loop.run(held, world.shutdown)
        # What was raised first, with a note of what could not be done about it.
        assert [note for note in away.value.__notes__ if "was not given back" in note] != []
        (row,) = await world.rows("SELECT lease_attempt_id::text AS owner, lease_expires_at FROM agentruns.runs")
        assert row.owner == held.fence.attempt_id.text
        assert row.lease_expires_at == held.lease.expires_at.to_datetime()
        proxy.bring_up()

    behind_a_wire(work, chain(a=lambda _context: Finish({})), lease=LONG)
