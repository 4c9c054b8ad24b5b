"""What the figures were measured with: versions and the machine, without its name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_PACKAGES: Final = (
    "agentruns", "sqlalchemy", "asyncpg", "attrs", "cattrs", "jsonschema", "rfc8785", "referencing", "uuid-utils",
    "dbos", "langgraph", "langgraph-checkpoint-postgres", "procrastinate", "psycopg",
)  # fmt: skip
_PROCESSOR: Final = "model name"


def versions() -> dict[str, str | None]:
    """Give the version of Python and of each package, ``None`` for those that are not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, object]:
    """Name the processor, count what this process may use of it, and name the kernel."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def _processor() -> str:
    """Read the processor's name where Linux keeps it; elsewhere the platform knows something."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(_PROCESSOR)]
    return found[0] if found else platform.processor()
