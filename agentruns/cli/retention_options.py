"""The options that say which runs may go; nothing of it is guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

import click

from agentruns.cli.parameters import TENANT
from agentruns.domain.scalars import TenantId
from agentruns.operations.retention import RetentionPolicy

_UNITS: Final = ("days", "hours", "minutes", "seconds")
_DURATION: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,7})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")

Function = Callable[..., Any]


def duration(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    """Read days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(value)
    if found is None or not value:
        raise click.BadParameter(f"{value!r} is no duration such as 30d, 36h or 1d12h", context, parameter)
    return timedelta(**{unit: int(count or 0) for unit, count in zip(_UNITS, found.groups(), strict=True)})


def _keep(status: str, words: str) -> Callable[[Function], Function]:
    return click.option(
        f"--keep-{status}",
        callback=duration,
        required=True,
        metavar="D",
        help=f"How long a run stays after it {words}, such as 30d, 36h or 1d12h.",
    )


_OPTIONS: Final = (
    click.option("--tenant", type=TENANT, metavar="T", help="Tenant whose runs may go."),
    click.option("--all-tenants", is_flag=True, help="Runs of every tenant may go."),
    _keep("succeeded", "has succeeded"),
    _keep("failed", "has failed"),
    _keep("cancelled", "was cancelled"),
    click.option(
        "--retry-guarantee",
        callback=duration,
        default="7d",
        show_default=True,
        metavar="D",
        help="How long clients may count on finding an ended run by its key; nothing is kept for less.",
    ),
    click.option("--include-quarantined", is_flag=True, help="Quarantined runs may go as well."),
)


def criteria(command: Function) -> Function:
    """Give a command ``policy`` and, for the operation, ``whose`` runs, from the options that are added to it."""

    @wraps(command)
    def called(*arguments: Any, tenant: TenantId | None, all_tenants: bool, **options: Any) -> Any:
        if (tenant is None) is not all_tenants:
            raise click.UsageError("name one tenant with --tenant, or say --all-tenants")
        whose = {"all_tenants": True} if tenant is None else {"tenant_id": tenant}
        names = [name for name in options if name.startswith(("keep_", "retry_", "include_"))]
        policy = RetentionPolicy(**{name: options.pop(name) for name in names})
        return command(*arguments, whose=whose, policy=policy, **options)

    offered: Function = called
    for option in reversed(_OPTIONS):
        offered = option(offered)
    return offered
