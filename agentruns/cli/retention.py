"""``agentruns retention``: what may go, its removal, the receipts, and reservations that are over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import click
from attrs import asdict, define, field
from sqlalchemy import Connection

from agentruns.cli import connection
from agentruns.cli.failures import STOPPED
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import TENANT
from agentruns.cli.retention_options import criteria, duration
from agentruns.cli.root import Group
from agentruns.cli.stopping import stopping
from agentruns.domain.scalars import TenantId
from agentruns.operations.reservations import MOST_RESERVATIONS, prune_reservations
from agentruns.operations.retention import (
    HeldRun,
    RetentionBatch,
    RetentionPolicy,
    plan_retention,
    remove_runs,
    retention_receipts,
)
from agentruns.operations.verification import verify_revisions

_PLANNED: Final = ("tenant_id", "succeeded", "failed", "cancelled", "quarantined", "event_count")
_HELD: Final = ("tenant_id", "run_id", "reason", "constraint")
_RECEIPT: Final = ("receipt_id", "removed_at", "cutoff_at", "run_count", "row_count", "byte_count")


@click.group(cls=Group)
def retention() -> None:
    """Remove runs that nobody needs any more, whole and with a receipt; and reservations that are over."""


@retention.command()
@criteria
@click.pass_context
def plan(context: click.Context, whose: Mapping[str, Any], policy: RetentionPolicy) -> None:
    """Count the runs that may go now, and remove nothing."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> list[dict[str, Any]]:
        found = plan_retention(reading, policy, schema=settings.schema, **whose)
        return [asdict(each, recurse=False) for each in found]

    output.lines(connection.read(settings, output, work), columns=_PLANNED)


@retention.command()
@criteria
@click.option("--yes", is_flag=True, help="Remove them for good.")
@click.pass_context
def remove(context: click.Context, whose: Mapping[str, Any], policy: RetentionPolicy, yes: bool) -> None:
    """Remove the runs that may go, batch by batch; the first SIGINT or SIGTERM stops after the one under way."""
    if not yes:
        raise click.UsageError("what is removed cannot be brought back: look at `retention plan`, then say --yes")
    settings = settings_of(context)
    output = Output(settings)
    done = _Removed()
    with stopping(output) as signals:

        def work(removing: Connection) -> None:
            for step in remove_runs(removing, policy, schema=settings.schema, **whose):
                done.add(step)
                output.say(_sentence(step))
                if signals:
                    return

        connection.read(settings, output, work)
    if done.is_locked_out:
        output.say("Somebody else holds runs that may go: run the command again")
    is_complete = not (signals or done.is_locked_out)
    done.show(output, is_complete=is_complete)
    context.exit(0 if is_complete else STOPPED)


@retention.command()
@click.option("--tenant", type=TENANT, required=True, metavar="T", help="Tenant whose runs were removed.")
@click.pass_context
def receipts(context: click.Context, tenant: TenantId) -> None:
    """List the receipts of what was removed, oldest first."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> list[dict[str, Any]]:
        verify_revisions(reading, schema=settings.schema)
        reading.rollback()
        found = retention_receipts(reading, tenant, schema=settings.schema)
        return [asdict(each, recurse=False) | {"policy": each.policy.decode()} for each in found]

    output.lines(connection.read(settings, output, work), columns=_RECEIPT)


@retention.command("prune-reservations")
@click.option(
    "--window",
    callback=duration,
    required=True,
    metavar="D",
    help="How long a reservation stays, such as 30d, 36h or 1d12h; 1 hour to 366 days.",
)
@click.pass_context
def prune(context: click.Context, window: timedelta) -> None:
    """Remove reservations of fair scheduling that are older, 10,000 at a time; no cycle moves.

    The first SIGINT or SIGTERM stops after the ones under way.
    """
    settings = settings_of(context)
    output = Output(settings)
    with stopping(output) as signals:

        def work(removing: Connection) -> tuple[int, bool]:
            total = 0
            while not signals:
                count = prune_reservations(removing, window, schema=settings.schema)
                total += count
                if count < MOST_RESERVATIONS:
                    return total, True
                output.say(f"removed {count} reservations")
            return total, False

        total, is_complete = connection.read(settings, output, work)
    output.document({"reservations": total, "complete": is_complete})
    context.exit(0 if is_complete else STOPPED)


@define
class _Removed:
    """Add up what a command has removed."""

    runs: int = 0
    rows: int = 0
    bytes: int = 0
    batches: int = 0
    held: list[dict[str, Any]] = field(factory=list)

    @property
    def is_locked_out(self) -> bool:
        """Something is left that a later call can remove; what a row refers to stays until that row goes."""
        return any(held["reason"] == "locked" for held in self.held)

    def add(self, step: RetentionBatch | HeldRun) -> None:
        if isinstance(step, HeldRun):
            self.held.append(asdict(step, recurse=False))
            return
        self.runs += step.run_count
        self.rows += step.row_count
        self.bytes += step.byte_count
        self.batches += 1

    def show(self, output: Output, *, is_complete: bool) -> None:
        members = asdict(self, recurse=False) | {"complete": is_complete}
        if output.is_json:
            output.document(members)
            return
        output.document(members | {"held": len(self.held)})
        if self.held:
            output.lines(self.held, columns=_HELD)


def _sentence(step: RetentionBatch | HeldRun) -> str:
    if isinstance(step, HeldRun):
        return f"{step.tenant_id}: run {step.run_id} stays, {step.reason}"
    return f"{step.tenant_id}: removed {step.run_count} runs, {step.row_count} rows"
