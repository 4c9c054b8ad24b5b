"""What can be known about a node's code without calling it or reading its source."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, get_origin, get_type_hints

#: What no node may say that it returns: a bare string is not a route, and a number is no update.
_NEVER_RETURNED = (str, bytes, bool, int, float, list, tuple, set, frozenset, Iterator, AsyncIterator)

#: A context is known by its name: its class stands above this module.
_CONTEXT = "GraphNodeContext"


def takes(function: Callable[..., object], *, count: int) -> bool:
    """Whether the function can be called with exactly that many positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def is_generator(function: Callable[..., object]) -> bool:
    """Whether calling it would give a generator, asynchronous or not, instead of a result."""
    called = _called(function)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await: it was made by ``async def``."""
    return inspect.iscoroutinefunction(_called(function))


def hides_coroutine(function: Callable[..., object]) -> bool:
    """Whether a plain function is known to return something to await: it wraps, or is annotated as, a coroutine.

    It would be called in a thread, where nobody awaits what it returns.
    """
    if is_asynchronous(function):
        return False
    returned = _plain(_hints(function).get("return"))
    is_annotated = isinstance(returned, type) and issubclass(returned, Awaitable)
    return is_annotated or is_asynchronous(inspect.unwrap(function))


def flaw_of(function: Callable[..., object]) -> str | None:
    """Name what keeps a function from being a node, or give ``None``.

    ``wrong_arity``, ``generator``, ``returns_awaitable``, or ``wrong_annotation``: its parameter is annotated as
    something that a context is not, or its result as something that no node may return.
    """
    if is_generator(function):
        return "generator"
    if not takes(function, count=1):
        return "wrong_arity"
    if hides_coroutine(function):
        return "returns_awaitable"
    return None if _may_take_context(function) and _may_return(function) else "wrong_annotation"


def _may_take_context(function: Callable[..., object]) -> bool:
    parameter = next(iter(inspect.signature(function).parameters))
    annotated = _plain(_hints(function).get(parameter))
    if not isinstance(annotated, type) or annotated in (Any, object) or getattr(annotated, "_is_protocol", False):
        return True
    return annotated.__name__ == _CONTEXT


def _may_return(function: Callable[..., object]) -> bool:
    returned = _plain(_hints(function).get("return"))
    return not isinstance(returned, type) or not issubclass(returned, _NEVER_RETURNED)


def _plain(annotated: object) -> object:
    """Give the class that a generic annotation is of."""
    return get_origin(annotated) or annotated


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """Read annotations, or none where a name is only known to type checkers."""
    try:
        return get_type_hints(_called(function))
    except (NameError, TypeError, AttributeError):
        return {}


def _called(function: Callable[..., object]) -> Callable[..., object]:
    """Find what really runs: the function inside a partial one, or the method of a callable object."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__
