"""Verify that the current role can do what its job needs, and see what else it can do."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Literal

from sqlalchemy import Connection

from agentruns.errors import SchemaVerificationError
from agentruns.store.privileges import Privilege, Role, excess, expected, missing
from agentruns.store.privileges_held import held
from agentruns.store.released import Catalogue

#: Whether excess privileges are reported or refused.
PrivilegeMode = Literal["warn", "require"]
#: Whose table of privileges the current role is held against.
VerifiedRole = Literal["runtime", "operator"]

_log: Final = logging.getLogger("agentruns.store.verification")
_MORE: Final[dict[VerifiedRole, str]] = {
    "runtime": (
        "the role may do more than a runtime must: run `agentruns grants apply`, and connect as its runtime role"
    ),
    "operator": (
        "the role may do more than an operator must: run `agentruns grants apply`, and connect as its operator role"
    ),
}
_OWNER: Final = "the role owns the tables or acts for their owner, so nothing is refused to it"
#: A warning names so many privileges; all of them are in the error that ``require`` raises.
_NAMED: Final = 5


def verify_role(
    connection: Connection,
    *,
    schema: str,
    role: VerifiedRole,
    released: Catalogue,
    is_owner: bool,
    mode: PrivilegeMode,
) -> str:
    """Refuse a role that cannot do what it must, and hand back a warning where it can do more, else nothing.

    Args:
        connection: as the role.
        schema: the schema.
        role: the job that says what it must.
        released: the objects whose privileges are ours to judge; others keep what is theirs in the schema.
        is_owner: the role owns the tables or acts for their owner.
        mode: what to do about more.

    Raises:
        SchemaVerificationError: ``missing_privileges``, or ``excess_privileges`` where the mode is ``require``.
    """
    wanted, has = expected(Role(role)), held(connection, schema=schema)
    if lacking := missing(wanted, has):
        raise _refused("missing_privileges", schema, _lines("missing", lacking))
    more = (
        [_OWNER] if is_owner else _lines("excess", [extra for extra in excess(wanted, has) if _is_in(released, extra)])
    )
    if more and mode == "require":
        raise _refused("excess_privileges", schema, more)
    return _bounded(more)


def tell_of_more(warning: str, *, schema: str, role: VerifiedRole, is_owner: bool) -> None:
    """Log what a role can do beyond its needs."""
    # An owner is what a database with one role has, as everybody's first one does: no reason for alarm.
    level = logging.INFO if is_owner else logging.WARNING
    _log.log(level, _MORE[role], extra={"schema": schema, "warnings": (warning,)})


def _is_in(released: Catalogue, privilege: Privilege) -> bool:
    name = f"{privilege.name}()" if privilege.kind == "function" else privilege.name
    return privilege.kind == "schema" or name in released[privilege.kind]


def _lines(verdict: str, privileges: Iterable[Privilege]) -> list[str]:
    return [f"{verdict} {privilege}" for privilege in sorted(privileges)]


def _bounded(lines: list[str]) -> str:
    more = len(lines) - _NAMED
    return ", ".join([*lines[:_NAMED], *([f"{more} more"] if more > 0 else [])])


def _refused(reason: str, schema: str, findings: list[str]) -> SchemaVerificationError:
    return SchemaVerificationError(reason=reason, schema=schema, findings=tuple(findings))
