"""``agentruns server``: the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from attrs import asdict

from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Group
from agentruns.operations.embedded import EmbeddedServer

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group(cls=Group)
def server() -> None:
    """Start and stop the embedded PostgreSQL."""


def _place(function: Decorated) -> Decorated:
    """Add the options that say which server is meant."""
    for option in (
        click.option("--run-as", metavar="USER", help="Account of the server when you are root."),
        click.option(
            "--major", type=click.IntRange(16, 18), default=18, show_default=True, help="Version of PostgreSQL."
        ),
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False, path_type=Path),
            help="Data directory; else AGENTRUNS_DATA_DIR, else your own.",
        ),
    ):
        function = option(function)
    return function


@server.command()
@_place
@click.option("--port", type=click.IntRange(1, 65535), help="Listen on this port of 127.0.0.1 too, with a password.")
@click.pass_context
def start(context: click.Context, data_dir: Path | None, major: int, run_as: str | None, port: int | None) -> None:
    """Start the server and leave it running."""
    output = Output(settings_of(context))
    embedded = EmbeddedServer(data_dir, major=major, run_as=run_as, port=port)
    output.say(f"Starting PostgreSQL {major} in {embedded.status().data_dir}")
    output.document(asdict(embedded.start()))


@server.command()
@_place
@click.pass_context
def stop(context: click.Context, data_dir: Path | None, major: int, run_as: str | None) -> None:
    """Stop the server, whoever uses it."""
    output = Output(settings_of(context))
    embedded = EmbeddedServer(data_dir, major=major, run_as=run_as)
    was_running = embedded.stop()
    output.document({"data_dir": embedded.status().data_dir, "was_running": was_running, "is_running": False})


@server.command()
@_place
@click.pass_context
def status(context: click.Context, data_dir: Path | None, major: int, run_as: str | None) -> None:
    """Show whether the server runs, and where."""
    embedded = EmbeddedServer(data_dir, major=major, run_as=run_as)
    Output(settings_of(context)).document(asdict(embedded.status()))


@server.command()
@_place
@click.pass_context
def url(context: click.Context, data_dir: Path | None, major: int, run_as: str | None) -> None:
    """Write the running server's URL, which holds no secret."""
    output = Output(settings_of(context))
    text = EmbeddedServer(data_dir, major=major, run_as=run_as).url.render_as_string()
    if output.is_json:
        output.document({"url": text})
    else:
        output.text(text)
