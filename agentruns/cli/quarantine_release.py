"""``agentruns quarantine release``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentruns.cli import connection
from agentruns.cli.app import app_option, executables_of
from agentruns.cli.operators import decided
from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.parameters import QUARANTINE, RUN, TENANT
from agentruns.cli.root import Command
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.scalars import TenantId
from agentruns.domain.verification_report import RunVerificationReport
from agentruns.errors import ExecutableGraphUnavailableError
from agentruns.operations.quarantines import ReleasedQuarantine, release_quarantine
from agentruns.runtime.store import AgentRunStore

if TYPE_CHECKING:
    from agentruns.runtime.deployment import Deployment

_COUNTED = ("supersteps", "attempts", "results", "waits", "calls", "isolations", "bytes")


@click.command(cls=Command)
@click.argument("tenant", type=TENANT)
@click.argument("run", type=RUN)
@click.argument("quarantine_id", type=QUARANTINE, metavar="QUARANTINE")
@decided
@click.option(
    "--evidence-file",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    required=True,
    metavar="F",
    help="File with what was decided on, any JSON; its digest is stored.",
)
@app_option(required=False, help="The deployment that has the run's graph; without it only a release can be repeated.")
@click.pass_context
def release(
    context: click.Context,
    /,
    *,
    tenant: TenantId,
    run: RunId,
    quarantine_id: QuarantineId,
    authority: OperatorAuthority,
    evidence_file: Path,
    deployment: Deployment | None,
) -> None:
    """Verify the whole run, and let it go on if nothing is found. It needs the operator role.

    Repeating it with the same evidence is safe.
    """
    settings = settings_of(context)
    output = Output(settings)
    evidence = BoundedJson.parse(evidence_file.read_bytes(), JsonLimits.MAXIMUM)
    executables = executables_of(deployment)

    async def work(store: AgentRunStore) -> ReleasedQuarantine:
        return await release_quarantine(
            store,
            executables,
            tenant,
            run,
            quarantine_id,
            principal=authority.principal,
            reason=authority.reason,
            evidence=evidence,
        )

    try:
        done = connection.use_store(settings, output, work, role="operator")
    except ExecutableGraphUnavailableError:
        if deployment is not None:
            raise
    else:
        _show(output, done, tenant_id=tenant, run_id=run)
        return
    raise click.UsageError("a run is verified with its graph: name the application with --app MODULE:NAME")


def _show(output: Output, done: ReleasedQuarantine, **ids: object) -> None:
    members: dict[str, object] = {
        **ids,
        "quarantine_id": done.quarantine.quarantine_id,
        "outcome": done.outcome.value,
        "released_at": done.released_at,
        "cause": done.quarantine.cause.value,
        "component": done.quarantine.component,
        "evidence_digest": done.release.evidence_digest,
        "verification_digest": done.release.verification_digest,
    }
    verified = None if done.verification is None else _counts(done.verification)
    if output.is_json:
        output.document({**members, "verified": verified})
    else:
        output.document({**members, **{f"verified {name}": value for name, value in (verified or {}).items()}})


def _counts(report: RunVerificationReport) -> dict[str, Any]:
    head = {"events": report.head_sequence.value, "head_digest": report.head_digest, "status": report.status.value}
    return {**head, **{name: getattr(report, name).value for name in _COUNTED}}
