"""The converter is the library's own and has exactly the hooks that its module lists."""

from __future__ import annotations

import cattrs
import pytest

from agentruns.domain import converter
from agentruns.domain.converter import CONVERTER, STRUCTURE, UNSTRUCTURE
from agentruns.domain.scalars import TenantId


def _registered(dispatch: object) -> list[object]:
    return [handler for handler, *_ in dispatch._function_dispatch._handler_pairs]  # type: ignore[attr-defined]  # cattrs'


def test_the_hooks_are_the_listed_ones_and_win_over_the_stock_ones() -> None:
    structure = _registered(CONVERTER._structure_func)[: len(STRUCTURE)]
    unstructure = _registered(CONVERTER._unstructure_func)[: len(UNSTRUCTURE)]
    assert structure == [predicate for predicate, _ in reversed(STRUCTURE)]
    assert unstructure == [predicate for predicate, _ in reversed(UNSTRUCTURE)]


def test_it_is_strict_and_not_the_global_one() -> None:
    assert CONVERTER.forbid_extra_keys
    assert not CONVERTER.detailed_validation
    assert CONVERTER is not cattrs.global_converter
    with pytest.raises(Exception, match=r"TenantId|structure"):
        cattrs.global_converter.structure({"tenant": "a"}, TenantId)


def test_nobody_else_registers_on_it() -> None:
    assert not hasattr(converter, "register")
