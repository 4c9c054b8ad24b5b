"""The dialect as jsonschema implements it, imported without what only checks a format.

jsonschema imports the parsers of all formats when it is imported itself, whether or not any schema has one: that of
IRIs takes seconds to be made, and that of durations imports a library of dates. Here they are imported when they are
asked first: :func:`prepare_format` asks, when a registry is built whose documents need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

__all__ = ["FORMAT_CHECKER", "Draft202012Validator", "ValidationError", "Validator", "extend", "prepare_format"]


class DurationParsingException(ValueError):  # noqa: N818 - as isoduration calls it
    """Stand in for isoduration's own, which jsonschema names before it is imported."""


def _later(module: str, name: str) -> Callable[..., Any]:
    """Give a function that imports another one and calls it."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*arguments, **named)

    return call


def _parse_duration(text: str) -> Any:
    isoduration = import_module("isoduration")
    try:
        return isoduration.parse_duration(text)
    except isoduration.DurationParsingException as error:
        raise DurationParsingException(*error.args) from error


#: What jsonschema takes from each module.
_DEFERRED: Final[dict[str, dict[str, Any]]] = {
    "isoduration": {"parse_duration": _parse_duration, "DurationParsingException": DurationParsingException},
    "rfc3986_validator": {"validate_rfc3986": _later("rfc3986_validator", "validate_rfc3986")},
    "rfc3987_syntax": {"is_valid_syntax": _later("rfc3987_syntax", "is_valid_syntax")},
    "webcolors": {name: _later("webcolors", name) for name in ("name_to_hex", "normalize_hex")},
}


@contextmanager
def _parsers_deferred() -> Iterator[None]:
    """Put stand-ins where jsonschema looks for parsers; whoever imports one after the block gets the parser."""
    deferred = {
        name: members for name, members in _DEFERRED.items() if name not in sys.modules and find_spec(name) is not None
    }
    for name, members in deferred.items():
        stand_in = sys.modules[name] = ModuleType(name)
        vars(stand_in).update(members)
    try:
        yield
    finally:
        for name in deferred:
            del sys.modules[name]


with _parsers_deferred():
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator
    from jsonschema.validators import extend

FORMAT_CHECKER: Final = Draft202012Validator.FORMAT_CHECKER


def prepare_format(name: str) -> None:
    """Make what a format is checked with, so that no validation has to wait for it."""
    FORMAT_CHECKER.conforms("", name)
