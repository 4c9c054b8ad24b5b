"""What a deployment lacks fails closed, and never hides what stands under a key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.domain.graph.definition import GraphNode
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentSubmissionConflictError,
    ExecutableGraphUnavailableError,
    SchemaRejectedError,
    SchemaUnavailableError,
)
from agentruns.runtime.registry import ExecutableGraphRegistryBuilder
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.standard_schemas import register_standard_agent_admission_event_schema
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.graphs import ROLES, graph_of

Run = Callable[[Coroutine[Any, Any, Any]], Any]


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("input", {"input": [1]}),
        ("evidence", {"evidence": 1}),
        ("initial_state", {"state": [1]}),
    ],
)
def test_SUB_16_invalid_data_leaves_no_row_and_sends_nothing(
    kit: Any, run: Run, part: str, changes: dict[str, Any]
) -> None:
    async def work() -> None:
        executables = kit.executables_of(evidence={"type": "null"})
        async with kit.runs(executables=executables) as runs, kit.engine() as engine:
            sent = kit.sent(engine)
            async with engine.connect() as connection:
                for session in (None, connection):
                    with pytest.raises(SchemaRejectedError) as refused:
                        await runs.submit(
                            AgentSubmissionKey.generate(), kit.request(evidence_type="null", **changes), session
                        )
                    assert refused.value.part == part
            assert sent == []

    run(work())
    assert run(kit.rows()) == {}


def test_SUB_16_without_the_graph_fresh_and_equal_content_fail_and_other_content_conflicts(kit: Any, run: Run) -> None:
    async def work() -> None:
        key, keyless = AgentSubmissionKey.generate(), kit.request(input={"n": 3})
        async with kit.runs() as runs:
            first = await runs.submit(key, kit.request())
            await runs.admit(keyless)
        async with kit.runs(publish=False, executables=kit.executables_of(graphs=())) as runs:
            run_id = first.snapshot.provenance.run_id
            for call in (
                runs.submit(AgentSubmissionKey.generate(), kit.request()),
                runs.submit(key, kit.request()),
                runs.submit(AgentSubmissionKey.generate(), keyless),
                runs.admit(keyless),
                runs.load(kit.request().tenant_id, run_id),
                runs.load_by_key(kit.request().tenant_id, key),
            ):
                with pytest.raises(ExecutableGraphUnavailableError) as missing:
                    await call
                assert missing.value.reason == "not_installed"
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, kit.request(input={"n": 2}))

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


def test_SUB_16_without_the_evidence_schema_the_same(kit: Any, run: Run) -> None:
    async def work() -> None:
        key = AgentSubmissionKey.generate()
        async with kit.runs() as runs:
            await runs.submit(key, kit.request())
        async with kit.runs(publish=False, executables=kit.executables_of(evidence=None)) as runs:
            for call in (runs.submit(AgentSubmissionKey.generate(), kit.request()), runs.submit(key, kit.request())):
                with pytest.raises(SchemaUnavailableError) as missing:
                    await call
                assert (missing.value.reason, missing.value.part) == ("not_installed", "evidence")
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, kit.request(input={"n": 2}))

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_an_agent_whose_schemas_are_not_its_graphs_is_refused(kit: Any, run: Run) -> None:
    async def work() -> None:
        other = graph_of([GraphNode.of("a", terminal=True)], name="other-graph", prefix="other-")
        executables = kit.executables_of(graphs=(kit.graph, other), more=tuple(f"other-{role}" for role in ROLES))
        async with kit.runs(executables=executables) as runs:
            await runs.publish(kit.request().tenant_id, other)
            with pytest.raises(ExecutableGraphUnavailableError) as refused:
                await runs.submit(AgentSubmissionKey.generate(), kit.request(graph=other))
            assert refused.value.reason == "input_schema"

    run(work())
    assert run(kit.rows()) == {}


def test_a_facade_without_the_standard_event_schemas_cannot_be_built(kit: Any) -> None:
    builder = JsonSchemaRegistryBuilder()
    register_standard_agent_admission_event_schema(builder)
    executables = ExecutableGraphRegistryBuilder(builder.build()).build()
    with pytest.raises(SchemaUnavailableError) as missing:
        DurableAgentRuns(AgentRunStore(kit.url), executables)
    assert str(getattr(missing.value.reference, "id", "")).endswith("/agent-cancellation-event/1.0.0")
