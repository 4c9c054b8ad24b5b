"""The files of the revisions, in a copy of the package: other line ends are no change, another word is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

Within = Callable[[str, Callable[[Connection], Any]], Any]

#: Upgrades with CRLF line ends; then edits a revision, and a module that revisions run on, and shows what is sent.
PROGRAM = r"""
import asyncio, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from agentruns import migrations
from agentruns.errors import SchemaVerificationError

folder = Path(migrations.__file__).parent
revisions = sorted((folder / "versions").glob("0*.py"))

async def main():
    engine = create_async_engine(sys.argv[1])
    for path in [*revisions, *folder.glob("frozen*.py")]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    async with engine.begin() as connection:
        await connection.run_sync(migrations.upgrade)
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *sent: print(sent[2]))
    for path in (revisions[4], folder / "frozen_views.py"):
        before = path.read_bytes()
        path.write_bytes(before + b"# more\n")
        async with engine.connect() as connection:
            calls = (migrations.upgrade, lambda sync: migrations.downgrade(sync, to="15"), lambda _: migrations.sql())
            for call in calls:
                try:
                    await connection.run_sync(call)
                except SchemaVerificationError as error:
                    print(folder.parents[1], error.reason, error.found.split()[0])
        path.write_bytes(before)
    await engine.dispose()

asyncio.run(main())
"""


def copied(place: Path) -> Path:
    """Copy the package, the folders that are mapped into it included."""
    for package in ("agentruns", "agentruns.migrations.versions", "agentruns.schemas"):
        with as_file(files(package)) as folder:
            target = place.joinpath(*package.split("."))
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return place


def test_line_ends_are_accepted_and_an_edit_is_refused_before_any_sql(
    empty_database_url: str, within: Within, tmp_path: Path
) -> None:
    variables = {**os.environ, "PYTHONPATH": str(copied(tmp_path / "copy"))}
    command = [sys.executable, "-W", "error", "-c", PROGRAM, empty_database_url]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, "")
    refused = [f"{tmp_path / 'copy'} tampered {name}" for name in ("0005_node_results.py", "frozen_views.py")]
    assert done.stdout.splitlines() == [each for each in refused for _ in range(3)]
    numbers = text("SELECT count(*) FROM agentruns.applied_revisions")
    assert within(empty_database_url, lambda connection: connection.execute(numbers).scalar_one()) == 16
