"""Tenants whose names begin alike, or differ in case or in a sign of a pattern, never see one another's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import evolve, frozen

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, QuarantineId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.state import RunState
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, key_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait
from agentruns.errors import InvalidValueError, RunNotFoundError
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.replay import RunReader
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.journal import Window
from agentruns.store.keys import SubmissionProbe
from agentruns.store.leases import Deferral, Release, Renewal
from agentruns.store.retention import FIRST, LAST, Retention, Terms
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.waits import WaitLookup
from agentruns.store.whole_history import FIRST_ID, WholeHistory
from agentruns.testing import samples
from agentruns.testing.drives import DriveWorld, builder

InWorld = Callable[..., None]

LONG: Final = timedelta(minutes=1)
OWNERS: Final = tuple(map(TenantId, ("foo", "foobar", "FOO", "fo_")))
#: Whose name all others begin with, and who has nothing.
NOBODY: Final = TenantId("fo")
NOT_FOUND: Final = "not found"


def asleep() -> GraphBundle:
    """Wait for a moment that is long past when the run comes to it, behind a question that nobody answers."""
    graph = builder()
    graph.node(name="a", entry=True, wait_to="b")(lambda _context: Suspend(NodeWait.timer(due_in=timedelta(days=1))))
    graph.node(name="b", terminal=True)(lambda _context: Finish({}))
    return graph.build()


@frozen
class Stranger:
    """Somebody's run, and everything by which it can be named.

    Attributes:
        held: a run of the same tenant with a live lease, by its fence.
    """

    tenant_id: TenantId
    state: RunState
    key: AgentSubmissionKey
    held: RunFence

    @property
    def run_id(self) -> RunId:
        return self.state.run_id


def request_of(world: DriveWorld, tenant_id: TenantId) -> DurableAgentAdmissionRequest:
    graph = world.bundle.graph
    return samples.admission_request(
        tenant_id=tenant_id,
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(input={}, input_schema=graph.input_schema),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )


async def settled(world: DriveWorld, tenant_id: TenantId) -> Stranger:
    """Let a tenant have one run that waits and one that is owned."""
    await world.runs.publish(tenant_id, world.bundle.graph)
    key, request = AgentSubmissionKey.generate(), request_of(world, tenant_id)
    await world.runs.submit(key, request)
    held = await world.store.claim(tenant_id, request.run_id, AttemptId.generate())
    await world.loop.run(held, world.shutdown)
    owned = request_of(world, tenant_id)
    await world.runs.submit(AgentSubmissionKey.generate(), owned)
    fence = (await world.store.claim(tenant_id, owned.run_id, AttemptId.generate())).fence
    replayed = await RunReader(world.store, world.executables).read(tenant_id, request.run_id)
    return Stranger(tenant_id, replayed.state, key, fence)


# --- every method of every repository that names a run ----------------------------------------------------------------


def _quarantine(other: Stranger) -> Quarantine:
    return Quarantine(
        quarantine_id=QuarantineId.generate(),
        cause=QuarantineCause.INTEGRITY_FAILURE,
        component="chain",
        evidence_digest=plain_digest(b"chain"),
        expected_head=other.state.head.digest if other.state.head else None,
        epoch=other.held.epoch,
    )


def asked_of_a_run(tenant_id: TenantId, other: Stranger, graph: Any) -> Mapping[str, tuple[Any, Callable[..., Any]]]:
    """Name, for each method, what it answers of a run that is not there, and a call of it."""
    run_id, fence = other.run_id, evolve(other.held, tenant_id=tenant_id)
    head, later = other.state.head, Timestamp.parse("2100-01-01T00:00:00.000000Z")
    wait_ids = tuple(wait.wait_id for wait in other.state.waits)
    assert head is not None
    assert wait_ids
    nothing_below = (tenant_id, run_id)
    return {
        "leases.claim": (None, lambda w: w.leases.claim(*nothing_below, AttemptId.generate(), duration=LONG)),
        "leases.supersede": (
            None,
            lambda w: w.leases.supersede(*nothing_below, AttemptId.generate(), expected_epoch=None, duration=LONG),
        ),
        "leases.renew": (
            (None,),
            lambda w: w.leases.renew([Renewal(fence=fence, desired=later)], horizon=LONG, skip_locked=False),
        ),
        "leases.release": ((None,), lambda w: w.leases.release([Release(fence=fence)], skip_locked=False)),
        "leases.defer": (
            (None,),
            lambda w: w.leases.defer([Deferral(fence=fence, head=head, not_before=later)], skip_locked=False),
        ),
        "leases.observe": ((None,), lambda w: w.leases.observe([fence])),
        "control.hold": ((False,), lambda w: w.control.hold([nothing_below], skip_locked=False)),
        "runs.find_events": ((), lambda w: w.runs.find_events(*nothing_below, [], after=0)),
        "journal.read": (None, lambda w: w.journal.read(*nothing_below)),
        "journal.superstep_sizes": ((), lambda w: w.journal.superstep_sizes(*nothing_below, Window(), limit=9)),
        "journal.event_sizes": ((), lambda w: w.journal.event_sizes(*nothing_below, Window(), limit=9)),
        "quarantines.add_claimed": (
            None,
            lambda w: w.quarantines.add_claimed(fence, head=head, quarantine=_quarantine(other)),
        ),
        "quarantines.find": (NOT_FOUND, lambda w: w.quarantines.find(*nothing_below, QuarantineId.generate())),
        "waits.find": (
            ((None,) * len(wait_ids),),
            lambda w: w.waits.find([WaitLookup(tenant_id=tenant_id, run_id=run_id, wait_ids=wait_ids)]),
        ),
        "explanations.of": (NOT_FOUND, lambda w: w.explanations.of(*nothing_below, graph_digests=None)),
        "ends.read": ((None, None), lambda w: _ends(w, tenant_id, other)),
        "keys.probe": ((False, False), lambda w: _probe(w, tenant_id, other, graph)),
        "whole.events": ((), lambda w: WholeHistory(w).events(*nothing_below, after=0, until=9)),
        "whole.waits": ((), lambda w: WholeHistory(w).waits(*nothing_below, after=FIRST_ID)),
        "whole.isolations": ((), lambda w: WholeHistory(w).isolations(*nothing_below)),
    }


def _ends(work: UnitOfWork, tenant_id: TenantId, other: Stranger) -> tuple[Any, Any]:
    by_id = RunLookup(tenant_id=tenant_id, run_id=other.run_id)
    by_key = RunLookup(tenant_id=tenant_id, key_digest=key_digest(other.tenant_id, other.key))
    found = Ends(work).read([by_id, by_key])
    return found[0].run, found[1].run


def _probe(work: UnitOfWork, tenant_id: TenantId, other: Stranger, graph: Any) -> tuple[bool, bool]:
    digest = key_digest(other.tenant_id, other.key)
    asked = SubmissionProbe(tenant_id=tenant_id, run_id=other.run_id, key_digest=digest, graph_digest=graph)
    (answer,) = work.keys.probe([asked])
    return answer.has_key, answer.has_candidate


def listed(tenant_id: TenantId, graph: Any) -> Mapping[str, Callable[[UnitOfWork], set[Any]]]:
    """Name each method that lists something of a tenant, and the runs, or the number of things, that it lists."""
    due = {"graph_digests": [graph], "after": None, "limit": 64}
    terms = Terms(
        tenant_id=tenant_id, keeps=dict.fromkeys(RunStatus, timedelta(0)), keep_isolated=timedelta(0), policy=b"{}"
    )
    return {
        "discovery.ready_runs": lambda w: {
            each.run_id for each in w.discovery.ready_runs(tenant_id, [graph], limit=64, cursor=None).runs
        },
        "waits.timers": lambda w: {each.run_id for each in w.waits.timers(tenant_id, **due)},
        "waits.interrupts": lambda w: {each.run_id for each in w.waits.interrupts(tenant_id, **due)},
        "waits.deadlines": lambda w: {each.run_id for each in w.waits.deadlines(tenant_id, after=None, limit=64)},
        "retention.removable": lambda w: {
            RunId(each.place.run_id) for each in Retention(w).removable(terms, "isolated", after=FIRST, until=LAST)
        },
        "retention.receipts": lambda w: set(Retention(w).receipts(tenant_id, after=None)),
        "graphs.published": lambda w: {len(w.graphs.published(tenant_id))},
        "graphs.find": lambda w: {w.graphs.find(tenant_id, graph) is not None},
    }


async def answered(world: DriveWorld, call: Callable[[UnitOfWork], Any]) -> Any:
    """Call a method, and give what it says of a run that is not there the same name wherever it is raised."""
    try:
        return await world.store.run(call)
    except RunNotFoundError:
        return NOT_FOUND


def test_DB_09_no_method_of_a_repository_shows_or_touches_a_row_of_another_tenant(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        owners = [await settled(world, tenant_id) for tenant_id in OWNERS]
        graph = world.bundle.graph.definition_digest
        # What a tenant could see is there to be seen: a timer and a lease that have run out, an isolated run.
        await world.rows("UPDATE agentruns.run_waits SET due_at = now() - interval '1 h'")
        await world.expire_leases()
        for owner in owners:
            await world.store.set_tenant_limit(owner.tenant_id, 7)
        before = await world.everything()
        for tenant_id in (*OWNERS, NOBODY):
            for other in (each for each in owners if each.tenant_id != tenant_id):
                for name, (expected, call) in asked_of_a_run(tenant_id, other, graph).items():
                    assert await answered(world, call) == expected, (name, tenant_id, other.tenant_id)
        assert await world.everything() == before
        for owner in owners:
            found = {name: await world.store.read(call) for name, call in listed(owner.tenant_id, graph).items()}
            assert found.pop("discovery.ready_runs") == {owner.held.run_id}
            assert found.pop("waits.timers") == {owner.run_id}
            assert (found.pop("graphs.published"), found.pop("graphs.find")) == ({1}, {True})
            assert set().union(*found.values()) == set()
            assert await world.store.tenant_limit(owner.tenant_id) == 7
        nothing = {name: await world.store.read(call) for name, call in listed(NOBODY, graph).items()}
        assert (nothing.pop("graphs.published"), nothing.pop("graphs.find")) == ({0}, {False})
        assert set().union(*nothing.values()) == set()
        assert await world.store.tenant_limit(NOBODY) is None
        everybody = (*OWNERS, NOBODY)
        assert await world.store.read(lambda w: w.discovery.ready_among(everybody, [graph])) == OWNERS
        assert await world.store.read(lambda w: w.discovery.due_among(everybody, [graph])) == OWNERS

    in_world(work, asleep(), lease=LONG)


def test_DB_09_a_claim_takes_runs_of_its_own_tenant_only(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        owners = [await settled(world, tenant_id) for tenant_id in OWNERS]
        await world.expire_leases()
        digests, ids = [world.bundle.graph.definition_digest], [AttemptId.generate() for _ in range(8)]
        assert await world.store.claim_ready(NOBODY, 8, attempt_ids=ids, graph_digests=digests) == ()
        for owner in owners:
            taken = await world.store.claim_ready(owner.tenant_id, 8, attempt_ids=ids, graph_digests=digests)
            assert [(each.fence.tenant_id, each.fence.run_id) for each in taken] == [
                (owner.tenant_id, owner.held.run_id)
            ]

    in_world(work, asleep(), lease=LONG)


@pytest.mark.parametrize("name", ["fo%", "fo*", "fo o", "fo\\"])
def test_DB_09_a_sign_that_a_pattern_would_take_is_in_no_name(name: str) -> None:
    with pytest.raises(InvalidValueError):
        TenantId(name)
