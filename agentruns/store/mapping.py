"""Go between columns and scalars; what a column cannot hold, or a scalar cannot be, is corrupt."""

from __future__ import annotations

from datetime import datetime

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import CorruptDataError, InvalidValueError


class StoredValue:
    """Read, under ``with``, what stands in a column of a run.

    Raises:
        CorruptDataError: it is no value that the library would have written.
    """

    __slots__ = ("_component", "_run_id", "_tenant_id")

    def __init__(self, tenant_id: TenantId, run_id: RunId, component: str) -> None:
        self._tenant_id = tenant_id
        self._run_id = run_id
        self._component = component

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValueError):
            raise CorruptDataError(tenant_id=self._tenant_id, run_id=self._run_id, component=self._component) from error


def instant(value: datetime) -> Timestamp:
    """Read a ``timestamptz``; the driver gives the infinities as naive values, which are refused."""
    return Timestamp.from_datetime(value)


def optional_instant(value: datetime | None) -> Timestamp | None:
    """Read a nullable ``timestamptz``."""
    return None if value is None else Timestamp.from_datetime(value)


def moment(value: Timestamp | None) -> datetime | None:
    """Write a ``timestamptz``."""
    return None if value is None else value.to_datetime()


def raw(value: Digest | None) -> bytes | None:
    """Write a digest's column."""
    return None if value is None else value.raw
