"""What the commands have in common by which a person decides something about a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from agentruns.cli.output import Output
from agentruns.cli.parameters import ISSUER, SUBJECT
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.operator_authority import MAX_REASON_BYTES, OperatorAuthority
from agentruns.domain.scalars import Scalar, SubjectId
from agentruns.domain.texts import check_public_text
from agentruns.domain.uris import IssuerId
from agentruns.errors import InvalidValueError
from agentruns.runtime.control import AgentRunMutation

Function = Callable[..., Any]


def _reason(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        check_public_text("OperatorAuthority", value, max_bytes=MAX_REASON_BYTES)
    except InvalidValueError as error:
        refusal = f"wanted 1 to {MAX_REASON_BYTES} bytes of text on one line ({error.reason})"
    else:
        return value
    raise click.BadParameter(refusal, context, parameter)


def decided(command: Function) -> Function:
    """Give a command its ``authority``: who decides and why, from options that are added to it. The record keeps it."""

    @wraps(command)
    def called(*arguments: Any, principal: tuple[IssuerId, SubjectId], reason: str, **options: Any) -> Any:
        issuer, subject = principal
        authority = OperatorAuthority(principal=PrincipalIdentity(issuer=issuer, subject=subject), reason=reason)
        return command(*arguments, authority=authority, **options)

    with_reason = click.option("--reason", callback=_reason, required=True, metavar="R", help="Why.")
    with_principal = click.option(
        "--principal", type=(ISSUER, SUBJECT), required=True, metavar="ISSUER SUBJECT", help="Who decides."
    )
    offered: Function = with_principal(with_reason(called))
    return offered


def say_ids(output: Output, **ids: Scalar) -> None:
    """Tell the ids before anything is sent: with them the command can be repeated when its answer is lost."""
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in ids.items())
    output.say(f"If the answer is lost, repeat this with {options}")


def show_mutation(output: Output, done: AgentRunMutation, **ids: Scalar) -> None:
    """Write what was done and how the run stands after it."""
    snapshot = done.snapshot
    output.document(
        {**ids, "outcome": done.outcome.value, "status": snapshot.status, "revision": snapshot.revision.value}
    )
