"""Parameters that are single values: what a malformed one should have been is said, the text itself is not repeated."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import click

from agentruns.domain.digests import Digest
from agentruns.domain.ids import EventId, FailureId, QuarantineId, RunId, UuidScalar, WaitId
from agentruns.domain.lease import MAXIMUM_LIVE_LEASES
from agentruns.domain.scalars import Scalar, Scope, SubjectId, TenantId
from agentruns.domain.uris import IssuerId
from agentruns.errors import InvalidValueError

ScalarT = TypeVar("ScalarT", bound=Scalar)

_UUID: Final = "a UUID of version 7 in lower case, such as 01890000-0000-7000-8000-000000000000"
_WANTED: Final[dict[type[Scalar], str]] = {
    TenantId: "1 to 128 of the characters A-Z a-z 0-9 . _ : -",
    Digest: "sha256: and 64 hexadecimal digits in lower case",
    IssuerId: "an https URL of at most 512 characters",
    SubjectId: "1 to 255 printable ASCII characters",
    Scope: "1 to 256 printable ASCII characters without space, quote or backslash",
}


def _read_as(scalar: type[ScalarT]) -> Callable[[str], ScalarT]:
    """Make the type of a parameter that is a scalar of one class.

    What was given may have been pasted from the wrong place, so the refusal holds nothing of it.
    """
    wanted = _UUID if issubclass(scalar, UuidScalar) else _WANTED[scalar]

    def read(text: str) -> ScalarT:
        try:
            return scalar.parse(text)
        except InvalidValueError as error:
            refusal = f"wanted {wanted} ({error.reason})"
        raise click.BadParameter(refusal)

    return read


TENANT: Final = _read_as(TenantId)
RUN: Final = _read_as(RunId)
WAIT: Final = _read_as(WaitId)
EVENT: Final = _read_as(EventId)
FAILURE: Final = _read_as(FailureId)
QUARANTINE: Final = _read_as(QuarantineId)
DIGEST: Final = _read_as(Digest)
ISSUER: Final = _read_as(IssuerId)
SUBJECT: Final = _read_as(SubjectId)
SCOPE: Final = _read_as(Scope)


_COUNT: Final = re.compile(r"[1-9][0-9]{0,3}")


def _live_leases(text: str) -> int | None:
    if text == "none":
        return None
    if _COUNT.fullmatch(text) and int(text) <= MAXIMUM_LIVE_LEASES:
        return int(text)
    raise click.BadParameter(f"wanted a number from 1 to {MAXIMUM_LIVE_LEASES}, or none")


_ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):)?(?P<port>[0-9]{1,5})")
_HIGHEST_PORT: Final = 65_535


def _address(text: str) -> tuple[str, int]:
    """Read a port of this machine's loopback address, or of the address before it."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _HIGHEST_PORT:
        raise click.BadParameter(f"wanted PORT or HOST:PORT, with a port from 0 to {_HIGHEST_PORT}")
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


#: Where to listen; port 0 takes one that is free.
ADDRESS: Final = _address
#: How many leases of a tenant may live at once; ``none`` is no limit.
LIVE_LEASES: Final = _live_leases
