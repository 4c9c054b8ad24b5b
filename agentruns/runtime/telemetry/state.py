"""Whether anybody records."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import define

if TYPE_CHECKING:
    from agentruns.runtime.telemetry.recording import Recording

try:
    from agentruns.runtime.telemetry.recording import configured
except ImportError:  # an optional package
    configured = None  # type: ignore[assignment]

_log: Final = logging.getLogger("agentruns.runtime.telemetry")

#: Looking costs as much as twenty calls, so a busy process does not look at every one of its own.
_PAUSE: Final = 0.05


@define
class _State:
    """Hold what records.

    Attributes:
        recording: ``None`` as long as nobody does. What happens within a call reads it; where a call begins,
            :func:`found` looks for it.
        looks_at: the monotonic instant of the next look.
    """

    recording: Recording | None = None
    looks_at: float = 0.0


STATE: Final = _State()


def found() -> Recording | None:
    """Give what records; until the application has set a provider, look for one now and then."""
    if STATE.recording is None and configured is not None and (now := time.monotonic()) >= STATE.looks_at:
        STATE.looks_at = now + _PAUSE
        STATE.recording = _looked_for(configured)
    return STATE.recording


def _looked_for(configured: Callable[[], Recording | None]) -> Recording | None:
    """Look; a provider that cannot even be set up is told of once, and not asked again."""
    try:
        return configured()
    except Exception as error:  # noqa: BLE001 - it is the application's, and no run depends on it
        STATE.looks_at = math.inf
        _log.warning("telemetry cannot be set up and is left out", extra={"error": type(error).__name__})
        return None
