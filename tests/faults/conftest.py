"""A world whose store reaches its server through a wire that a test can break."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import DriveWorld, open_world
from agentruns.testing.faults import WireProxy

Work = Callable[[DriveWorld, WireProxy], Coroutine[Any, Any, None]]


@pytest.fixture
def behind_a_wire(database_url: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Callable[..., None]:
    """Run a test behind a proxy: ``behind_a_wire(work, graph, **options)`` of :func:`open_world`.

    What the world's own looks and damages read and write goes past the proxy.
    """

    def call(work: Work, graph: GraphBundle, **options: Any) -> None:
        async def opened() -> None:
            async with WireProxy.before(database_url) as proxy, open_world(proxy.url, graph, **options) as world:
                world.url = database_url
                await work(world, proxy)

        run(opened())

    return call
