"""Only one module encodes what is stored and digested; what leaves its fast path, and why."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import rfc8785

import agentruns
from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_walk import walk

REFERENCE = rfc8785.dumps
PACKAGE = Path(agentruns.__file__).parent


def test_K6_nothing_else_sorts_members() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "sort_keys"
    }
    assert found == {"domain/json_plain.py"}


def test_K6_nothing_else_calls_the_reference() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "rfc8785" in path.read_text()}
    assert found == {"domain/canonical.py"}


@pytest.mark.parametrize(
    ("tree", "is_plain"),
    [
        ({"a": [1, "é\u2028\U0001f600", None, True]}, True),
        ([1.5], False),
        ({"a": {"b": [1.0]}}, False),
        ({"é": 1}, False),
        ([{"a": {"\U0001f600": 1}}], False),
    ],
    ids=repr,
)
def test_a_float_and_a_name_beyond_ascii_leave_the_fast_path(
    tree: JsonTree,
    is_plain: bool,  # noqa: FBT001  # a column of the table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    def reference(value: Any) -> bytes:
        calls.append(value)
        return REFERENCE(value)

    monkeypatch.setattr(rfc8785, "dumps", reference)
    assert walk(tree, JsonLimits.DEFAULT).is_plain is is_plain
    expected = canonical_bytes(tree)
    assert calls == ([] if is_plain else [tree])
    assert expected == REFERENCE(tree)
