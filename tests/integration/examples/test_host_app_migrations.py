"""The host application's Alembic project: eight deploys at once, both branches down, and revisions of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

Within = Callable[[str, Callable[[Connection], Any]], Any]
Deploy = Callable[..., Popen[str]]

PROJECT = Path(__file__).parents[3] / "examples" / "host_app"
REVISIONS = [f"agentruns_{number:04d}" for number in range(1, 17)]
OF_THE_HOST = {"public.alembic_version", "public.order_reviews", "public.orders"}
PARCEL = """
class Parcel(Base):
    __tablename__ = "parcels"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
"""


@pytest.fixture
def config(host_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The project on a database that it has migrated, for commands inside this process."""
    monkeypatch.setenv("ORDER_REVIEWS_DATABASE_URL", host_url)
    return Config(PROJECT / "alembic.ini", output_buffer=StringIO(), stdout=StringIO())


def _column(statement: str) -> Callable[[Connection], list[str]]:
    return lambda connection: list(connection.execute(text(statement)).scalars())


_applied = _column("SELECT revision FROM agentruns.applied_revisions ORDER BY number")
_heads = _column("SELECT version_num FROM public.alembic_version ORDER BY 1")
_tables = _column("SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('public', 'agentruns')")


def test_OPS_01_eight_deploys_at_once_leave_one_history(
    deploy: Deploy, empty_database_url: str, within: Within
) -> None:
    deploys = [deploy(empty_database_url, ["upgrade", "heads"]) for _ in range(8)]
    assert [(each.communicate()[0], each.returncode) for each in deploys] == [("", 0)] * 8
    assert within(empty_database_url, _applied) == REVISIONS
    assert within(empty_database_url, _heads) == ["host_0002"]
    found = within(empty_database_url, _tables)
    assert {name for name in found if name.startswith("public.")} == OF_THE_HOST


def test_the_host_goes_down_first(config: Config, host_url: str, within: Within) -> None:
    command.downgrade(config, "host@host_0001")
    assert within(host_url, _heads) == ["agentruns_0016", "host_0001"]
    assert "agentruns.runs" in within(host_url, _tables)
    command.downgrade(config, "agentruns@base")
    assert within(host_url, _heads) == ["host_0001"]
    assert sorted(within(host_url, _tables)) == ["public.alembic_version", "public.orders"]


def test_down_to_our_base_takes_along_what_depends_on_us(config: Config, host_url: str, within: Within) -> None:
    command.downgrade(config, "agentruns@base")
    assert within(host_url, _heads) == ["host_0001"]
    assert sorted(within(host_url, _tables)) == ["public.alembic_version", "public.orders"]


def test_J3_autogenerate_sees_the_host_alone(
    config: Config, deploy: Deploy, host_url: str, within: Within, tmp_path: Path
) -> None:
    command.check(config)
    project = Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))
    models, versions = project / "order_reviews" / "models.py", project / "migrations" / "versions"
    kept = models.read_text(encoding="utf-8")
    models.write_text(kept.replace("    withdrawn_by: Mapped[str | None]\n", "") + PARCEL, encoding="utf-8")
    arguments = ["revision", "--autogenerate", "-m", "parcels", "--rev-id", "host_0003", "--head", "host@head"]
    deployed = deploy(host_url, arguments, project=project)
    assert "host_0003_parcels.py ...  done" in deployed.communicate()[0]
    generated = (versions / "host_0003_parcels.py").read_text(encoding="utf-8")
    lines = [line.strip().split("(")[0] for line in generated.splitlines()]
    assert [line for line in lines if line.startswith("op.")] == [
        "op.create_table",
        "op.drop_column",
        "op.add_column",
        "op.drop_table",
    ]
    assert "agentruns" not in generated
    deployed = deploy(host_url, ["upgrade", "heads"], project=project)
    assert (deployed.communicate()[0], deployed.returncode) == ("", 0)
    assert within(host_url, _heads) == ["host_0003"]
    assert within(host_url, _applied) == REVISIONS


def test_the_script_for_a_dba_holds_both_branches(config: Config) -> None:
    command.upgrade(config, "heads", sql=True)
    assert isinstance(config.output_buffer, StringIO)
    script = config.output_buffer.getvalue().replace('"', "")
    places = [
        script.index(words)
        for words in ("pg_advisory_xact_lock", "CREATE TABLE agentruns.runs (", "CREATE TABLE order_reviews (")
    ]
    assert places == sorted(places)
    assert script.count("INSERT INTO agentruns.applied_revisions") == len(REVISIONS)
