"""LangGraph: a graph of three nodes with its asynchronous PostgreSQL checkpointer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, TypedDict
from uuid import uuid4

from attrs import frozen

from benchmarks.fans import sibling_names
from benchmarks.peers.dbos_client import url_of
from benchmarks.place import Place
from benchmarks.workload import ARTICLES, order

#: When a checkpoint is durable: before the next step begins, or some time while it runs.
Durability = Literal["sync", "async"]

_NODES: Final = ("collect", "check", "answer")


class _State(TypedDict, total=False):
    order: dict[str, Any]
    collected: str
    checked: str
    articles: int


@frozen(kw_only=True)
class Invocation:
    """An order, and the thread under which its checkpoints are kept."""

    thread_id: str
    order: dict[str, Any]


@frozen
class LangGraph:
    """Compiled graphs, each with a checkpointer and a connection of its own, each used by one caller at a time.

    A checkpointer holds a lock while it uses a connection, one of a pool too, so a single one would serve one caller.
    """

    idle: asyncio.LifoQueue[Any]

    def orders(self, numbers: Iterable[int]) -> list[Invocation]:
        """Build what the graphs are given."""
        return [Invocation(thread_id=str(uuid4()), order=dict(order(number))) for number in numbers]

    async def run_sync(self, work: Invocation) -> None:
        """Run a graph whose next step begins when the last one's checkpoint is durable."""
        await self._run(work, "sync")

    async def run_async(self, work: Invocation) -> None:
        """Run a graph whose checkpoints are written meanwhile: a crash loses what was done since."""
        await self._run(work, "async")

    async def _run(self, work: Invocation, durability: Durability) -> None:
        graph = await self.idle.get()
        config = {"configurable": {"thread_id": work.thread_id}}
        found = await graph.ainvoke({"order": work.order}, config, durability=durability)
        assert found["articles"] == ARTICLES
        self.idle.put_nowait(graph)


@asynccontextmanager
async def opened(place: Place, *, callers: int, siblings: int | None = None) -> AsyncIterator[LangGraph]:
    """Make the checkpointer's tables, and compile a graph for each caller: a chain, or parallel siblings and a last."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415 - only who measures it needs it

    async with AsyncExitStack() as stack:
        idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for _ in range(callers):
            saver = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url_of(place)))
            if idle.empty():
                await saver.setup()
            idle.put_nowait(_chain(saver) if siblings is None else _fan(saver, siblings))
        yield LangGraph(idle)


def _chain(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415 - as above

    graph: Any = StateGraph(_State)
    for name, node in zip(_NODES, (_collect, _check, _answer), strict=True):
        graph.add_node(name, node)
    for before, after in zip((START, *_NODES), (*_NODES, END), strict=True):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=saver)


def _fan(saver: Any, siblings: int) -> Any:
    """Let all siblings begin at once; the last node waits for every one of them."""
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415 - as above

    names = sibling_names(siblings)
    members: dict[str, Any] = {"order": dict[str, Any], "articles": int, **dict.fromkeys(names, str)}
    graph: Any = StateGraph(TypedDict("_FanState", members, total=False))  # type: ignore[operator]  # made of names
    graph.add_node("last", _answer)
    for name in names:
        graph.add_node(f"node_{name}", _sibling(name))
        graph.add_edge(START, f"node_{name}")
    graph.add_edge([f"node_{name}" for name in names], "last")
    graph.add_edge("last", END)
    return graph.compile(checkpointer=saver)


def _sibling(name: str) -> Any:
    async def node(state: dict[str, Any]) -> dict[str, str]:
        return {name: f"order {state['order']['order']}"}

    return node


async def _collect(state: _State) -> _State:
    return {"collected": f"order {state['order']['order']}"}


async def _check(state: _State) -> _State:
    return {"checked": f"{state['collected']} is complete"}


async def _answer(state: _State) -> _State:
    return {"articles": sum(line["count"] for line in state["order"]["lines"])}
