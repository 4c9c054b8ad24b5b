"""Compute beside the event loop what would hold it up: folds, validation, reducers and digests of large documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar, cast

from agentruns.runtime.driver.threads import NodeThreads

T = TypeVar("T")

#: What is computed from more bytes than this takes longer than leases and other runs may wait.
_INLINE_BYTES: Final = 64 * 1024
#: At once in a process: more threads would only take turns at the interpreter.
_THREADS: Final = 2


def computing_threads() -> NodeThreads:
    """Make the threads that large computations of one driver share; no node ever holds one."""
    return NodeThreads(_THREADS, name="agentruns-compute")


async def computed(call: Callable[[], T], *, size: int, threads: NodeThreads) -> T:
    """Compute something from ``size`` bytes: at once, or in a thread while leases are renewed and other runs go on.

    Whoever is cancelled meanwhile leaves the computation to end by itself; nothing but its result comes of it.
    """
    if size <= _INLINE_BYTES:
        return call()
    return cast("T", await asyncio.shield(await threads.start(call)))
