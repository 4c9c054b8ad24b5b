"""The names of the package itself: complete, typed, and free of charge until they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import agentruns


def typed_names() -> dict[str, str]:
    """Read what a type checker sees: each name with the module that it is imported from.

    A package with ``py.typed`` gives what it imports ``as`` the same name, and nothing else: other names are private to
    type checkers, and editors do not offer them.
    """
    tree = ast.parse(Path(agentruns.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    return {alias.name: f"{node.module}" for node in imports for alias in node.names}


def test_Q1_type_checkers_and_the_interpreter_see_the_same_names() -> None:
    assert sorted(typed_names()) == agentruns.__all__
    assert {name: f"agentruns.{module}" for name, module in agentruns._HOMES.items()} == typed_names()


@pytest.mark.parametrize("name", agentruns.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(getattr(agentruns, name), "__name__", name) == name
    assert name in dir(agentruns)


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = agentruns.nonsense  # type: ignore[attr-defined]  # the point of the test


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys, agentruns; print([name for name in sys.modules if name.startswith(('agentruns.', 'sqlalchemy'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\n"


#: What somebody who submits, claims, answers or cancels tells apart from its family.
CAUGHT = [
    "CancellationConflictError",
    "CommitOutcomeUnknownError",
    "ContentionError",
    "DatabaseClockRegressionError",
    "ExecutableGraphUnavailableError",
    "IdConflictError",
    "LeaseLostError",
    "NotYetAvailableError",
    "ReducerRejectedError",
    "ResolverNotPermittedError",
    "RunNotRunnableError",
    "RunQuarantinedError",
    "SchemaUnavailableError",
    "StaleHeadError",
    "StoreUnavailableError",
    "WaitAlreadySettledError",
    "AttemptId",
]


@pytest.mark.parametrize("name", CAUGHT)
def test_what_an_application_catches_is_a_public_name(name: str) -> None:
    assert name in agentruns.__all__
