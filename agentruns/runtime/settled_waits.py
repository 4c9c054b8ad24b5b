"""Give a node the answers to what its run waited for."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.bodies import RESOLUTION, BodyRow
from agentruns.domain.ledger.records import SettledWait, WaitSettlement
from agentruns.domain.ledger.state import RunState
from agentruns.domain.run_waits import StoredWaitRow
from agentruns.domain.waits import WaitResolution
from agentruns.errors import CorruptDataError
from agentruns.runtime.store import AgentRunStore
from agentruns.store.waits import WaitLookup


@frozen(kw_only=True)
class SettledRunWait:
    """How a wait of a run was settled, proved by the event that settled it.

    Attributes:
        how: resolved, fired or abandoned.
        resolution: who answered, and what; exactly when it was resolved.
    """

    wait_id: WaitId
    how: WaitSettlement
    resolution: WaitResolution | None


async def read_settled(store: AgentRunStore, state: RunState) -> tuple[SettledRunWait, ...]:
    """Read the settled waits that led into the run's checkpoint, in the order of their registration.

    Raises:
        CorruptDataError: the bytes of an answer are not those that its event names.
    """
    if not state.settled:
        return ()
    ids = tuple(wait.wait_id for wait in state.settled)
    lookup = WaitLookup(tenant_id=state.tenant_id, run_id=state.run_id, wait_ids=ids)
    (rows,) = await store.read(lambda work: work.waits.find([lookup]))
    return tuple(_believed(state, wait, row) for wait, row in zip(state.settled, rows, strict=True))


def _believed(state: RunState, wait: SettledWait, row: StoredWaitRow | None) -> SettledRunWait:
    resolution: WaitResolution | None = None
    if wait.how is WaitSettlement.RESOLVED:
        body = BodyRow(data=b"" if row is None or row.resolution is None else row.resolution)
        if wait.resolution_digest is None or not RESOLUTION.verifies(wait.resolution_digest, body):
            raise CorruptDataError(tenant_id=state.tenant_id, run_id=state.run_id, component="run_waits.resolution")
        resolution = RESOLUTION.read(body)
    return SettledRunWait(wait_id=wait.wait_id, how=wait.how, resolution=resolution)
