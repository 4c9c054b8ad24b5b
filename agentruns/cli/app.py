"""Find the deployment that ``--app MODULE:NAME`` names."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment


class AppType(click.ParamType):
    """Take ``MODULE:NAME``; the module is looked for where the command runs, too."""

    name = "MODULE:NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Deployment:
        """Import the module and give its deployment; what goes wrong in it is named by its type."""
        from agentruns.runtime.deployment import Deployment  # noqa: PLC0415 - the help needs no SQLAlchemy

        if isinstance(value, Deployment):
            return value
        module_name, separator, name = str(value).partition(":")
        if not (module_name and separator and name):
            self.fail(f"{value!r} is not MODULE:NAME, such as shop.agents:deployment", param, ctx)
        try:
            found = getattr(_imported(module_name), name, None)
        except Exception as error:  # noqa: BLE001 - it is the application's own code
            self.fail(f"module {module_name!r} cannot be imported ({_words(error)})", param, ctx)
        if not isinstance(found, Deployment):
            self.fail(f"module {module_name!r} has no deployment called {name!r}", param, ctx)
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
