"""How long it takes to import the library, in fresh interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Final

from attrs import frozen

#: The package finds most of its public names when they are asked for; so all of them are asked for, too.
_CODE: Final = """
import time
began = time.perf_counter()
import agentruns
imported = time.perf_counter()
for name in agentruns.__all__:
    getattr(agentruns, name)
print(imported - began, time.perf_counter() - began)
"""


@frozen(kw_only=True)
class Imports:
    """Medians in seconds.

    Attributes:
        package: of ``import agentruns``.
        names: of that and the lookup of every public name.
    """

    package: float
    names: float


def measure(times: int) -> Imports:
    """Import in one interpreter after the other; the first one counts nowhere, since files are read then."""
    found = [_once() for _ in range(1 + times)][1:]
    package, names = zip(*found, strict=True)
    return Imports(package=statistics.median(package), names=statistics.median(names))


def _once() -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    package, names = done.stdout.split()
    return float(package), float(names)
