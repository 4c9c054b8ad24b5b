"""Say what every revision says alike: guard, row, comments, append-only triggers, what a downgrade may drop.

Frozen: released revisions run on it as it is, and the manifest holds its checksum. A new need is a new module.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from alembic import op

from agentruns.errors import SchemaVerificationError

_GUARD = """
DO $guard$ BEGIN
  IF current_setting('server_version_num')::integer NOT BETWEEN 160000 AND 189999 THEN
    RAISE EXCEPTION 'PostgreSQL % is not supported', current_setting('server_version')
      USING ERRCODE = 'AR003', DETAIL = 'unsupported_server', SCHEMA = '{name}';
  END IF;
  {history}
END $guard$
"""
_FIRST = """
  IF to_regclass('{schema}.applied_revisions') IS NOT NULL THEN
    RAISE EXCEPTION '{revision} has been applied to {name} already'
      USING ERRCODE = 'AR001', DETAIL = 'already_applied', SCHEMA = '{name}';
  END IF;
"""
_LATER = """
  IF to_regclass('{schema}.applied_revisions') IS NULL THEN
    RAISE EXCEPTION '{revision} needs {before} in {name}'
      USING ERRCODE = 'AR002', DETAIL = 'behind', SCHEMA = '{name}';
  END IF;
  IF EXISTS (SELECT FROM {schema}.applied_revisions WHERE number = {number}) THEN
    RAISE EXCEPTION '{revision} has been applied to {name} already'
      USING ERRCODE = 'AR001', DETAIL = 'already_applied', SCHEMA = '{name}';
  END IF;
  IF NOT EXISTS (SELECT FROM {schema}.applied_revisions WHERE number = {number} - 1) THEN
    RAISE EXCEPTION '{revision} needs {before} in {name}'
      USING ERRCODE = 'AR002', DETAIL = 'behind', SCHEMA = '{name}';
  END IF;
  IF NOT EXISTS (SELECT FROM {schema}.applied_revisions
                 WHERE number = {number} - 1 AND revision = '{before}' AND checksum = decode('{checksum}', 'hex')) THEN
    RAISE EXCEPTION '{before} in {name} is not the one that was released'
      USING ERRCODE = 'AR002', DETAIL = 'tampered', SCHEMA = '{name}';
  END IF;
"""
_CREATE_SCHEMA = """
DO $schema$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{name}') THEN
    CREATE SCHEMA {schema};
  END IF;
END $schema$
"""
_RECORD = """
INSERT INTO {schema}.applied_revisions
  (number, revision, checksum, oldest_code, applied_at, applied_by, package_version)
VALUES
  ({number}, '{revision}', decode('{checksum}', 'hex'), {oldest_code}, clock_timestamp(), session_user, '{package}')
"""
_FORGET = "DELETE FROM {schema}.applied_revisions WHERE number = {number}"
_EVIDENCE = """
DO $evidence$ BEGIN
  IF {rows} THEN
    RAISE EXCEPTION 'the downgrade below {revision} would destroy evidence in {name}'
      USING ERRCODE = 'AR004', DETAIL = 'downgrade_destroys_evidence', SCHEMA = '{name}';
  END IF;
END $evidence$
"""


def create_schema(schema: str) -> str:
    """Write the statement that creates the schema where it is missing, and asks for no privilege where it is not."""
    return located(_CREATE_SCHEMA, schema)


def located(statement: str, schema: str) -> str:
    """Put a schema into a statement: ``{schema}`` is its identifier, ``{name}`` its name inside a literal."""
    return statement.strip().replace("{schema}", f'"{schema}"').replace("{name}", schema)


def released() -> Mapping[str, Any]:
    """Read the package's manifest."""
    manifest: Mapping[str, Any] = json.loads(files("agentruns.migrations").joinpath("manifest.json").read_bytes())
    return manifest


def file_checksum(path: Path) -> str:
    """Hash a file with LF line ends."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


class Revision:
    """One revision: what it states about itself, and the statements around its DDL.

    Attributes:
        number: its place in the chain, from 1.
        path: its source.
        oldest_code: the lowest head whose release may still run against the schema after it.
    """

    def __init__(self, number: int, path: str, *, oldest_code: int | None = None) -> None:
        self.number = number
        self.path = Path(path)
        self.oldest_code = number if oldest_code is None else oldest_code

    @property
    def name(self) -> str:
        """Its id in the chain."""
        return _name(self.number)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Refuse what must not be upgraded, let the DDL run, and record that it has."""
        checksum = self._checksum()
        if self.number == 1:
            execute(_CREATE_SCHEMA)
        self._guard()
        yield
        execute(
            _RECORD.replace("{checksum}", checksum)
            .replace("{number}", str(self.number))
            .replace("{revision}", self.name)
            .replace("{oldest_code}", str(self.oldest_code))
            .replace("{package}", version("agentruns"))
        )

    @contextmanager
    def removed(self, *evidence: str) -> Iterator[None]:
        """Refuse to drop what is not empty, let the DDL run, and forget the revision.

        Args:
            evidence: tables, or ``table.column`` where the revision only added a column.
        """
        tables = sorted({name.partition(".")[0] for name in evidence})
        execute(f"LOCK TABLE {', '.join(f'{{schema}}.{table}' for table in tables)} IN ACCESS EXCLUSIVE MODE")
        if _may_destroy() != _schema():
            rows = " OR ".join(_rows(*name.partition(".")) for name in evidence)
            execute(_EVIDENCE.replace("{rows}", rows).replace("{revision}", self.name))
        yield
        if self.number > 1:
            execute(_FORGET.replace("{number}", str(self.number)))

    def _checksum(self) -> str:
        wanted = _checksum_of(self.number)
        if self.path.suffix == ".py" and self.path.is_file():
            found = file_checksum(self.path)
            if found != wanted:
                raise SchemaVerificationError(
                    reason="tampered", schema=_schema(), found=f"{self.name} {found}", wanted=wanted
                )
        return wanted

    def _guard(self) -> None:
        before = self.number - 1
        history = _LATER if before else _FIRST
        if before:
            history = history.replace("{before}", _name(before)).replace("{checksum}", _checksum_of(before))
        history = history.replace("{number}", str(self.number)).replace("{revision}", self.name)
        execute(_GUARD.replace("{history}", history.strip()))


def _name(number: int) -> str:
    return f"agentruns_{number:04d}"


def _checksum_of(number: int) -> str:
    entry: Mapping[str, str] = released()["revisions"][number - 1]
    return entry["sha256"]


def _rows(table: str, _: str, column: str) -> str:
    condition = f" WHERE {column} IS NOT NULL" if column else ""
    return f"EXISTS (SELECT FROM {{schema}}.{table}{condition})"


def _schema() -> str:
    schema: str = op.get_context().opts.get("agentruns_schema") or "agentruns"
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", schema):
        raise ValueError("agentruns_schema is not a name that needs no quotes")
    return schema


def _may_destroy() -> str | None:
    """Read which schema's evidence the operator gave up by name: our option, or ``-x agentruns_destroy=``."""
    context = op.get_context()
    named: str | None = context.opts.get("agentruns_destroy")
    environment = context.environment_context
    if named is None and environment is not None and environment.config is not None:
        named = environment.get_x_argument(as_dictionary=True).get("agentruns_destroy")
    return named


def execute(*statements: str) -> None:
    """Run statements in the schema in use, one by one."""
    schema = _schema()
    for statement in statements:
        op.execute(located(statement, schema))


def comment(relation: str, sentence: str, columns: Mapping[str, str], *, kind: str = "TABLE") -> None:
    """Say what a table or view is, and each of its columns."""
    if sentence:
        execute(f"COMMENT ON {kind} {{schema}}.{relation} IS {quoted(sentence)}")
    for name, meaning in columns.items():
        execute(f"COMMENT ON COLUMN {{schema}}.{relation}.{name} IS {quoted(meaning)}")


def quoted(text: str) -> str:
    """Write a text as a literal."""
    return "'" + text.replace("'", "''") + "'"


def append_only(table: str, *frozen_columns: str) -> None:
    """Refuse every change of a table but inserts and, where columns are named, updates of the others."""
    columns = f" OF {', '.join(frozen_columns)}" if frozen_columns else ""
    execute(
        f"CREATE TRIGGER append_only BEFORE UPDATE{columns} OR DELETE OR TRUNCATE ON {{schema}}.{table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forbid_change()"
    )
