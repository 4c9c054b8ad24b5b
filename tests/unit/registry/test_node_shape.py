from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from agentruns.runtime import context
from agentruns.runtime.node_shape import flaw_of, is_asynchronous

if TYPE_CHECKING:
    from somewhere_else import Unknown  # type: ignore[import-not-found] # only names that cannot be resolved


class GraphNodeContext:
    """Stands for the runtime's class of that name."""


class HasState(Protocol):
    state: Any


async def plain_async(context: Any) -> None: ...


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(context: Any) -> Any:
        return function(context)

    return wrapper


def wrapping_async(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(context: Any) -> Any:
        return await function(context)

    return wrapper


class Callable1:
    def __call__(self, context: Any) -> None: ...


class AsyncCallable:
    async def __call__(self, context: Any) -> None: ...


class GeneratorCallable:
    def __call__(self, context: Any) -> Any:
        yield context


def good() -> dict[str, Callable[..., Any]]:
    def untyped(context):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return context

    def default(context: Any, extra: int = 3) -> None: ...

    def variadic(*arguments: Any) -> None: ...

    def as_object(_context: object) -> dict[str, Any] | None:
        return None

    def as_context(_context: GraphNodeContext) -> dict[str, Any]:
        return {}

    def as_protocol(context: HasState) -> None: ...

    def unknown(_context: Unknown) -> str:
        return ""

    def two(first: Any, context: Any) -> None: ...

    return {
        "untyped": untyped,
        "default": default,
        "variadic": variadic,
        "object": as_object,
        "context": as_context,
        "protocol": as_protocol,
        "unknown": unknown,
        "async": plain_async,
        "wrapped async": wrapping_async(plain_async),
        "partial": functools.partial(two, 1),
        "partial async": functools.partial(plain_async),
        "callable": Callable1(),
        "async callable": AsyncCallable(),
        "method": Callable1().__call__,
        "lambda": lambda context: context,
    }


@pytest.mark.parametrize("name", good())
def test_what_may_be_a_node(name: str) -> None:
    assert flaw_of(good()[name]) is None


def none() -> None: ...


def two(context: Any, other: Any) -> None: ...


def keyword(*, context: Any) -> None: ...


def generator(_context: Any) -> Iterator[int]:
    yield 1


async def async_generator(_context: Any) -> AsyncIterator[int]:
    yield 1


def returns_coroutine(_context: Any) -> Coroutine[Any, Any, None]:
    raise AssertionError


def returns_awaitable(_context: Any) -> Awaitable[None]:
    raise AssertionError


def wrong_class(context: int) -> None: ...


def wrong_generic(context: dict[str, Any]) -> None: ...


def returns_text(_context: Any) -> str:
    return ""


def returns_list(_context: Any) -> list[str]:
    return []


def returns_iterator(_context: Any) -> Iterator[int]:
    return iter(())


def no_signature(context: Any) -> None: ...


no_signature.__signature__ = "unknown"  # type: ignore[attr-defined] # as some compiled functions have none


BAD: dict[str, tuple[Callable[..., Any], str]] = {
    "none": (none, "wrong_arity"),
    "two": (two, "wrong_arity"),
    "keyword": (keyword, "wrong_arity"),
    "generator": (generator, "generator"),
    "async generator": (async_generator, "generator"),
    "generator callable": (GeneratorCallable(), "generator"),
    "partial generator": (functools.partial(generator), "generator"),
    "coroutine": (returns_coroutine, "returns_awaitable"),
    "awaitable": (returns_awaitable, "returns_awaitable"),
    "wraps async": (wrapping(plain_async), "returns_awaitable"),
    "wrong class": (wrong_class, "wrong_annotation"),
    "wrong generic": (wrong_generic, "wrong_annotation"),
    "returns text": (returns_text, "wrong_annotation"),
    "returns list": (returns_list, "wrong_annotation"),
    "returns iterator": (returns_iterator, "wrong_annotation"),
    "no signature": (no_signature, "wrong_arity"),
}


@pytest.mark.parametrize("name", BAD)
def test_Q2_what_may_not(name: str) -> None:
    function, reason = BAD[name]
    assert flaw_of(function) == reason


def test_the_runtime_has_a_context_of_that_name() -> None:
    assert context.GraphNodeContext.__name__ == GraphNodeContext.__name__


def test_what_runs_on_the_loop() -> None:
    assert is_asynchronous(plain_async)
    assert is_asynchronous(AsyncCallable())
    assert is_asynchronous(functools.partial(plain_async))
    assert not is_asynchronous(Callable1())
    assert not is_asynchronous(wrapping(plain_async))
