"""Find the deployment that ``--app MODULE:NAME`` names, and what can be executed with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment
    from agentruns.runtime.registry import ExecutableGraphRegistry


def app_option(*, required: bool, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: A002 - as click calls it
    """Give a command its ``deployment``: the one that ``--app`` names."""
    return click.option("--app", "deployment", metavar="MODULE:NAME", callback=load_app, required=required, help=help)


def executables_of(deployment: Deployment | None) -> ExecutableGraphRegistry:
    """Give what a deployment can execute; without one no graph, and the library's own documents alone.

    Raises:
        DefinitionError: something of the deployment cannot be used as it is defined.
    """
    from agentruns.domain.schema import JsonSchemaRegistryBuilder  # noqa: PLC0415 - the help needs none of this
    from agentruns.runtime.registry import ExecutableGraphRegistryBuilder  # noqa: PLC0415 - see above
    from agentruns.runtime.standard_schemas import register_standard_schemas  # noqa: PLC0415 - see above

    if deployment is not None:
        return deployment.build().executables
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    return ExecutableGraphRegistryBuilder(documents.build()).build()


def load_app(context: click.Context, parameter: click.Parameter, named: str | None) -> Deployment | None:
    """Import the module, which may be where the command runs, and give its deployment; ``None`` when none is named.

    Raises:
        BadParameter: there is none. What goes wrong in the module is named by its type alone.
    """
    from agentruns.runtime.deployment import Deployment  # noqa: PLC0415 - the help needs no SQLAlchemy

    if named is None:
        return None
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
