"""The dialect as jsonschema implements it, imported without its parser of IRIs, which takes seconds to be made.

jsonschema makes that parser when it is imported, whether or not any schema has the format ``iri``. Here it is made when
it is asked first: :func:`prepare_format` asks, when a registry is built whose documents need it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

__all__ = ["FORMAT_CHECKER", "Draft202012Validator", "ValidationError", "Validator", "extend", "prepare_format"]

_PARSER: Final = "rfc3987_syntax"


def _is_valid_syntax(term: str, value: str) -> bool:
    return bool(import_module(_PARSER).is_valid_syntax(term, value))


@contextmanager
def _parser_deferred() -> Iterator[None]:
    """Put a stand-in where jsonschema looks for the parser; whoever imports it after the block gets the parser."""
    if _PARSER in sys.modules or find_spec(_PARSER) is None:
        yield
        return
    stand_in = ModuleType(_PARSER)
    vars(stand_in)["is_valid_syntax"] = _is_valid_syntax
    sys.modules[_PARSER] = stand_in
    try:
        yield
    finally:
        del sys.modules[_PARSER]


with _parser_deferred():
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator
    from jsonschema.validators import extend

FORMAT_CHECKER: Final = Draft202012Validator.FORMAT_CHECKER


def prepare_format(name: str) -> None:
    """Make what a format is checked with, so that no validation has to wait for it."""
    FORMAT_CHECKER.conforms("", name)
