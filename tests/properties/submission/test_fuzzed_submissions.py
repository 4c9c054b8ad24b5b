"""2,000 hostile submissions to a server: what is refused leaves no row, what is accepted is stored byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.ids import RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.request import AgentRequest
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, GraphState
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidValueError
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]
FuzzOf = Callable[[int], Any]
Shows = Callable[[BaseException, Any], bool]

SUBMISSIONS, AT_ONCE = 2_000, 100
PLACES: Final = ("input", "state", "evidence", "key", "run_id")
BODIES: Final = """SELECT a.run_id::text AS run_id, a.body, c.state FROM agentruns.agent_admissions AS a
    JOIN agentruns.run_checkpoints AS c USING (tenant_id, run_id)"""


def read(offered: Any, limits: JsonLimits) -> BoundedJson:
    """Take text as an application does that gets it from outside, and anything else as a tree."""
    return (BoundedJson.parse if type(offered) in (str, bytes) else BoundedJson.of)(offered, limits)


def request_of(world: DriveWorld, place: str, offered: Any) -> DurableAgentAdmissionRequest:
    """Ask for a run with what is offered in its place."""
    graph, ids, granted = world.bundle.graph, AgentRunIds.generate(), samples.authority()
    asked = samples.agent_request(input={}, input_schema=graph.input_schema)
    state = samples.graph_state({}, schema=graph.state_schema)
    if place == "input":
        asked = AgentRequest(
            input_schema=graph.input_schema,
            input=read(offered, JsonLimits.DEFAULT),
            budget_limits=asked.budget_limits,
        )
    elif place == "state":
        state = GraphState(schema=graph.state_schema, data=read(offered, JsonLimits.MAXIMUM))
    elif place == "evidence":
        granted = evolve(granted, evidence=evolve(granted.evidence, data=read(offered, JsonLimits.DEFAULT)))
    elif place == "run_id":
        ids = evolve(ids, run_id=RunId.parse(offered))
    return samples.admission_request(
        ids=ids,
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=asked,
        graph=graph.reference,
        granted=granted,
        initial_state=state,
    )


async def submitted(world: DriveWorld, place: str, offered: Any) -> DurableAgentAdmissionRequest:
    """Submit, from what came from outside to the answer."""
    key = AgentSubmissionKey.parse(offered) if place == "key" else AgentSubmissionKey.generate()
    request = request_of(world, place, offered)
    admitted = await world.runs.submit(key, request)
    assert admitted.outcome.value == "committed"
    assert admitted.snapshot.provenance.run_id == request.run_id
    return request


def test_fuzzed_submissions(in_world: InWorld, fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz = fuzz_of(6)
    trees = (fuzz.document, fuzz.python_tree, fuzz.object)
    makers = dict.fromkeys(("input", "state", "evidence"), trees) | {"key": (fuzz.key,), "run_id": (fuzz.run_id,)}

    async def work(world: DriveWorld) -> None:
        accepted: dict[str, DurableAgentAdmissionRequest] = {}
        kinds: Counter[str] = Counter()
        for _ in range(SUBMISSIONS // AT_ONCE):
            offers = [(place, fuzz.dice.choice(makers[place])()) for place in fuzz.dice.choices(PLACES, k=AT_ONCE)]
            calls: list[Coroutine[Any, Any, Any]] = [submitted(world, place, offered) for place, offered in offers]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            for (place, offered), answer in zip(offers, answers, strict=True):
                if isinstance(answer, BaseException):
                    is_typed = isinstance(answer, InvalidValueError)
                    assert is_typed or (isinstance(answer, TypeError) and type(offered) is not str), answer
                    assert not shows(answer, offered)
                else:
                    accepted[answer.run_id.text] = answer
                kinds[f"{place} {'refused' if isinstance(answer, BaseException) else 'accepted'}"] += 1
        assert set(kinds) == {f"{place} {end}" for place in PLACES for end in ("accepted", "refused")}
        assert kinds.total() == SUBMISSIONS
        await check(world, accepted)

    in_world(work, chain(a=lambda _context: None))


async def check(world: DriveWorld, accepted: dict[str, DurableAgentAdmissionRequest]) -> None:
    """There is a run for each accepted submission and no other, with the bytes that were taken."""
    rows = {row.run_id: row for row in await world.rows(BODIES)}
    assert rows.keys() == accepted.keys()
    for run_id, request in accepted.items():
        body = json.loads(rows[run_id].body)
        assert rows[run_id].state == request.initial_state.data.data
        assert canonical_bytes(body["request"]["input"]) == request.intent.request.input.data
        evidence = request.intent.authority.evidence
        assert canonical_bytes(body["authority"]["evidence"]["data"]) == evidence.data.data
    shown = await asyncio.gather(*(world.runs.load(TENANT, RunId(run_id)) for run_id in accepted))
    assert [each.admission_digest for each in shown] == [each.admission_digest for each in accepted.values()]
