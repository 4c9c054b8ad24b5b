"""The checkout, what is built from it, and an environment that holds the built wheel and nothing of ours besides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

#: What a build of a clean checkout would not see.
_LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")


def _run(*command: str | Path, cwd: Path, **variables: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AGENTRUNS_"))}
    environment = {**inherited, **variables}
    done = subprocess.run(  # noqa: S603 - commands of the tests
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def command() -> Callable[..., str]:
    """Run a command as on a machine where nothing of ours is set, and give what it wrote."""
    return _run


@pytest.fixture(scope="session")
def checkout() -> Path:
    return CHECKOUT


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two files that are published; the wheel was made from the sdist."""
    source = tmp_path_factory.mktemp("source") / "agentruns"
    shutil.copytree(CHECKOUT, source, ignore=_LEFT_OUT)
    shutil.copytree(CHECKOUT / ".ci", source / ".ci")
    target = tmp_path_factory.mktemp("built")
    _run(sys.executable, "-m", "build", "--outdir", target, source, cwd=target)
    return target


@pytest.fixture(scope="session")
def sdist(built: Path) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with the wheel and what it depends on."""
    place = tmp_path_factory.mktemp("fresh")
    _run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    programs = place / "venv" / "bin"
    _run(programs / "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=place)
    return programs
