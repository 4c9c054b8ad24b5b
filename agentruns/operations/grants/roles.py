"""Name the database roles that are granted something."""

from __future__ import annotations

from typing import Final

from attrs import fields, frozen

from agentruns.errors import InvalidOptionError
from agentruns.store.privileges import Role

#: PostgreSQL would cut a longer name, and so grant to a role that nobody named.
_LONGEST_NAME: Final = 63
_SHOWN: Final = 80


@frozen(kw_only=True)
class GrantedRoles:
    """Say which database role has which job. A job without a role is left out.

    Attributes:
        runtime: submits, reads, drives and finishes runs.
        operator: besides, releases quarantines.
        reader: sees overviews.
        retention: removes whole runs.
        evidence: the reader sees tables and decoded bodies too.

    Raises:
        InvalidOptionError: no role at all, what can be no role's name, or evidence without a reader.
    """

    runtime: str | None = None
    operator: str | None = None
    reader: str | None = None
    retention: str | None = None
    evidence: bool = False

    def __attrs_post_init__(self) -> None:
        for job in fields(GrantedRoles):
            if job.name != "evidence":
                _check_name(job.name, getattr(self, job.name))
        if not self.jobs:
            raise InvalidOptionError(option="roles", value="none", bound="one of runtime, operator, reader, retention")
        if self.evidence and self.reader is None:
            raise InvalidOptionError(option="evidence", value="without a reader", bound="with a reader")

    @property
    def jobs(self) -> tuple[tuple[str, Role], ...]:
        """The name of each database role, and its job."""
        reading = Role.EVIDENCE_READER if self.evidence else Role.READER
        named = (
            (self.runtime, Role.RUNTIME),
            (self.operator, Role.OPERATOR),
            (self.reader, reading),
            (self.retention, Role.RETENTION),
        )
        return tuple((name, job) for name, job in named if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the database roles."""
        return tuple(name for name, _ in self.jobs)


def _check_name(job: str, name: str | None) -> None:
    if name is not None and (not 0 < _size(name) <= _LONGEST_NAME or "\0" in name):
        bound = f"the name of a role, 1 to {_LONGEST_NAME} bytes"
        raise InvalidOptionError(option=job, value=ascii(name)[:_SHOWN], bound=bound)


def _size(name: object) -> int:
    """Count the bytes of a name; an argument of a command may be no text at all, and then none counts."""
    try:
        return len(name.encode()) if isinstance(name, str) else 0
    except UnicodeEncodeError:
        return 0
