"""Whether the peers are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

_NAMES: Final = {"dbos": "DBOS", "langgraph": "LangGraph", "procrastinate": "Procrastinate"}


def check_installed(*packages: str) -> None:
    """Insist on some peers.

    Raises:
        ModuleNotFoundError: the sentence says what to install.
    """
    for package in packages:
        if find_spec(package) is None:
            message = f"{_NAMES[package]} is missing: `pip install --group bench`, or leave --peers out"
            raise ModuleNotFoundError(message)
