"""Submissions on a real database: many at once, inside transactions that roll back, and with other content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from itertools import permutations
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.errors import AgentRunsError
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.testing.machines.stored import StoredWorld
from agentruns.testing.machines.submission import KEYS, FirstComers, bundle, executables, request_of

#: A key or none, a content, and the number of the candidate ids.
Attempt = tuple[int | None, int, int]

_STANDS: Final = """SELECT k.run_id::text AS run_id FROM agentruns.agent_submission_keys AS k
    JOIN agentruns.runs USING (tenant_id, run_id) JOIN agentruns.run_events AS e USING (tenant_id, run_id)
    WHERE k.tenant_id = :tenant AND k.origin = 'admitted' AND e.sequence = 1"""

attempts: Final = st.tuples(st.none() | st.integers(0, 2), st.integers(0, 1), st.integers(0, 3))


class StoredSubmissionMachine(RuleBasedStateMachine):
    """Submit to a database, and hold the answers against a model that serves one client after another.

    What several clients are told at once has to be what they would be told in some order.
    """

    def __init__(self, world: StoredWorld) -> None:
        super().__init__()
        self.world = world
        self.tenant = world.tenant()
        self.runs = DurableAgentRuns(world.store, executables())
        self.model = FirstComers()
        self.ids = [AgentRunIds.generate() for _ in range(4)]
        world.run(self.runs.publish(self.tenant, bundle().graph))

    @rule(many=st.lists(attempts, min_size=1, max_size=4))
    def submit_at_once(self, many: Sequence[Attempt]) -> None:
        """Let several clients submit at the same time."""
        answers = self.world.run(self._all(many))
        self._adopt(many, answers)

    @rule(many=st.lists(attempts, min_size=1, max_size=3), commits=st.booleans())
    def submit_inside_a_transaction(self, many: Sequence[Attempt], commits: bool) -> None:
        """Submit one after another in a caller's transaction, which is committed or rolled back."""
        model = deepcopy(self.model)
        answers = self.world.run(self._inside(many, commits=commits))
        assert answers == [model.submit(*attempt, is_late=False) for attempt in many]
        if commits:
            self.model = model

    @rule(held=attempts, other=attempts, commits=st.booleans())
    def overtake_a_transaction(self, held: Attempt, other: Attempt, commits: bool) -> None:
        """Submit beside a transaction that has submitted and is not over: it decides, whatever it comes to."""
        told, answer = self.world.run(self._beside(held, other, commits=commits))
        before = deepcopy(self.model)
        assert told == before.submit(*held, is_late=False)
        if commits:
            # Where they do not meet, the other one may have been first; then its answer is the same.
            self.model = before
        assert answer == self.model.submit(*other, is_late=False)

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        """Each run that the model knows is there whole, and no other one."""
        rows = self.world.run(self.world.rows(_STANDS, tenant=self.tenant.text))
        assert sorted(row.run_id for row in rows) == sorted(self.ids[run].run_id.text for run in self.model.runs)

    # -----------------------------------------------------------------------------------------------------------------

    async def _all(self, many: Sequence[Attempt]) -> list[tuple[str, int]]:
        return list(await asyncio.gather(*(self._submitted(attempt) for attempt in many)))

    async def _inside(self, many: Sequence[Attempt], *, commits: bool) -> list[tuple[str, int]]:
        async with self.world.engine.connect() as connection, connection.begin() as transaction:
            answers = [await self._submitted(attempt, connection) for attempt in many]
            await (transaction.commit() if commits else transaction.rollback())
        return answers

    async def _beside(self, held: Attempt, other: Attempt, *, commits: bool) -> tuple[tuple[str, int], tuple[str, int]]:
        async with self.world.engine.connect() as connection, connection.begin() as transaction:
            told = await self._submitted(held, connection)
            waiting = asyncio.create_task(self._submitted(other))
            await asyncio.sleep(0)
            await (transaction.commit() if commits else transaction.rollback())
        return told, await waiting

    async def _submitted(self, attempt: Attempt, session: AsyncConnection | None = None) -> tuple[str, int]:
        key, content, run = attempt
        try:
            if key is None:
                admitted = await self.runs.admit(self._request(content, run), session)
            else:
                admitted = await self.runs.submit(KEYS[key], self._request(content, run), session)
        except AgentRunsError as error:
            return type(error).__name__, self._number(getattr(error, "run_id", None))
        return admitted.outcome.value, self._number(admitted.snapshot.provenance.run_id)

    def _request(self, content: int, run: int) -> DurableAgentAdmissionRequest:
        return request_of(content, self.ids[run], tenant_id=self.tenant)

    def _number(self, run_id: Any) -> int:
        return next((number for number, ids in enumerate(self.ids) if str(ids.run_id) == str(run_id)), -1)

    def _adopt(self, many: Sequence[Attempt], answers: Sequence[tuple[str, int]]) -> None:
        """Find an order in which the model gives the same answers, and go on from what it leaves."""
        for order in permutations(range(len(many))):
            model = deepcopy(self.model)
            told = {each: model.submit(*many[each], is_late=False) for each in order}
            if [told[each] for each in range(len(many))] == list(answers):
                self.model = model
                return
        raise AssertionError(f"no order of {many} gives {answers}")
