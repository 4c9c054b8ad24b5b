from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentruns

PACKAGE = Path(next(iter(agentruns.__path__)))
ENCODER = PACKAGE / "domain" / "json_plain.py"


def calls(source: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))


def sorts_keys(source: str) -> bool:
    return any(keyword.arg == "sort_keys" for call in calls(source) for keyword in call.keywords)


def fetches(source: str) -> bool:
    """Say whether a validator is made, or a document judged, without an explicit registry."""
    for call in calls(source):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        bare = name in {"check_schema", "validator_for"} or (
            name == "validate" and "jsonschema." in ast.unparse(call.func)
        )
        made = name.endswith("Validator") and name not in {"DocumentValidator", "Validator"}
        if bare or (made and all(keyword.arg != "registry" for keyword in call.keywords)):
            return True
    return False


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_validator_has_an_explicit_registry(path: Path) -> None:
    assert not fetches(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_one_encoder_sorts_keys(path: Path) -> None:
    assert path == ENCODER or not sorts_keys(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "Draft202012Validator({})",
        "jsonschema.Draft202012Validator({}, format_checker=f)",
        "jsonschema.validate(1, {})",
        "Draft202012Validator.check_schema({})",
        "_CountingValidator({})",
    ],
)
def test_the_lint_finds_a_validator_that_may_fetch(source: str) -> None:
    assert fetches(source)


def test_the_lint_finds_sorted_keys() -> None:
    assert sorts_keys("json.dumps(tree, sort_keys=True)")
    assert not sorts_keys("json.dumps(tree)")
