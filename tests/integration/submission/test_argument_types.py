"""A value of another Python type is refused where it comes in, before anything is sent, and is not repeated."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection

from agentruns.domain.ids import RunId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.joined import JoinedAgentRuns
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore

Run = Callable[[Coroutine[Any, Any, Any]], Any]
#: What a method takes by position, as ``(name, class)``.
METHODS: dict[str, tuple[tuple[str, str], ...]] = {
    "submit": (("key", "AgentSubmissionKey"), ("request", "DurableAgentAdmissionRequest")),
    "admit": (("request", "DurableAgentAdmissionRequest"),),
    "load": (("tenant_id", "TenantId"), ("run_id", "RunId")),
    "load_by_key": (("tenant_id", "TenantId"), ("key", "AgentSubmissionKey")),
    "publish": (("tenant_id", "TenantId"), ("graph", "CompiledGraph")),
}
CANARY = "canary-0123456789abcdef"
WRONG: tuple[Any, ...] = (CANARY, None, 1, True, CANARY.encode(), UUID(int=7), object(), [CANARY], {"text": CANARY})


@pytest.mark.parametrize("method", METHODS)
def test_a_value_of_another_type_is_refused_before_anything_is_sent(kit: Any, run: Run, method: str) -> None:
    request = kit.request()
    right = {
        "key": AgentSubmissionKey.generate(),
        "request": request,
        "tenant_id": request.tenant_id,
        "run_id": request.run_id,
        "graph": kit.graph,
    }
    # A name of the same grammar is another thing all the same.
    others = {"tenant_id": RunId.generate(), "run_id": request.tenant_id, "key": request.tenant_id}

    def arguments(name: str, wrong: Any) -> dict[str, Any]:
        return {each: right[each] for each, _ in METHODS[method]} | {name: wrong}

    async def work() -> None:
        async with AgentRunStore(kit.url) as store, kit.engine() as engine, engine.connect() as connection:
            runs, joined = DurableAgentRuns(store, kit.executables), JoinedAgentRuns(kit.executables)
            await connection.begin()
            own_sent, joined_sent = kit.sent(store._engine), kit.sent(engine)

            def synchronous(raw: Connection, given: dict[str, Any]) -> None:
                getattr(joined, method)(**given, session=raw)

            for name, wanted in METHODS[method]:
                for wrong in (*WRONG, *([others[name]] if name in others else [])):
                    given = arguments(name, wrong)
                    for call in (
                        getattr(runs, method)(**given),
                        getattr(runs, method)(**given, session=connection),
                        connection.run_sync(synchronous, given),
                    ):
                        with pytest.raises(TypeError) as error:
                            await call
                        assert str(error.value) == f"pass {name} as {wanted}, not {type(wrong).__name__}"
            assert own_sent == joined_sent == []

    run(work())
    assert run(kit.rows()) == {}
