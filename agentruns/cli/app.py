"""Find the deployment that ``--app MODULE:NAME`` names."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment


def load_app(context: click.Context, parameter: click.Parameter, named: str) -> Deployment:
    """Import the module, which may be where the command runs, and give its deployment.

    Raises:
        BadParameter: there is none. What goes wrong in the module is named by its type alone.
    """
    from agentruns.runtime.deployment import Deployment  # noqa: PLC0415 - the help needs no SQLAlchemy

    module_name, separator, name = named.partition(":")
    if not (module_name and separator and name):
        raise click.BadParameter(f"{named!r} is not MODULE:NAME, such as shop.agents:deployment", context, parameter)
    try:
        found = getattr(_imported(module_name), name, None)
    except Exception as error:
        refusal = f"module {module_name!r} cannot be imported ({_words(error)})"
        raise click.BadParameter(refusal, context, parameter) from error
    if not isinstance(found, Deployment):
        raise click.BadParameter(f"module {module_name!r} has no deployment called {name!r}", context, parameter)
    return found


def _imported(module_name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return import_module(module_name)


def _words(error: Exception) -> str:
    """Name a missing module; the text of any other error may hold anything, so only its type is shown."""
    missing = f": {error.name}" if isinstance(error, ModuleNotFoundError) else ""
    return f"{type(error).__name__}{missing}"
