"""Show the figures to a person, and write them down for a program."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table

from benchmarks.cases import (
    LOAD,
    LOAD_FLOOR,
    RETRY,
    RUN,
    RUN_ALONE,
    SUBMIT,
    SUBMIT_ALONE,
    SUBMIT_FLOOR,
    SUBMIT_SETS_FLOOR,
    Sizes,
)
from benchmarks.counts import Count
from benchmarks.measure import Figure

#: A submit must reach this share of the floor.
BAR: Final = 0.25

_ORDER: Final = (
    SUBMIT_FLOOR, SUBMIT_SETS_FLOOR, SUBMIT, RETRY, LOAD_FLOOR, LOAD, RUN, SUBMIT_ALONE, RUN_ALONE,
)  # fmt: skip
_PACKAGES: Final = ("agentruns", "sqlalchemy", "asyncpg", "attrs", "cattrs", "jsonschema", "rfc8785")


@frozen(kw_only=True)
class Results:
    """Everything that one run of the benchmarks found."""

    figures: Mapping[str, Figure]
    counts: Mapping[str, Count]
    server: Mapping[str, str]
    sizes: Sizes

    @property
    def ratios(self) -> dict[str, float]:
        """Give our rates as shares of the floors'."""
        rate = {name: figure.rate for name, figure in self.figures.items()}
        return {
            "submit / floor": rate[SUBMIT] / rate[SUBMIT_FLOOR],
            "submit / floor in sets": rate[SUBMIT] / rate[SUBMIT_SETS_FLOOR],
            "load / floor": rate[LOAD] / rate[LOAD_FLOOR],
        }

    @property
    def is_above_bar(self) -> bool:
        """Whether a submit reaches its share of the floor."""
        return self.ratios["submit / floor"] >= BAR


def show(results: Results) -> None:
    """Write the table."""
    console = Console()
    table = Table(title=f"{results.sizes.callers} callers, one process, middle of {results.sizes.rounds}")
    for column in ("case", "calls/s", "median ms", "p95 ms", "commits", "log bytes"):
        table.add_column(column, justify="left" if column == "case" else "right", no_wrap=True)
    for name in _ORDER:
        figure, count = results.figures[name], results.counts.get(name)
        counted = (f"{count.commits:.2f}", f"{max(0.0, count.log_bytes):,.0f}") if count else ("", "")
        times = (f"{1000 * figure.median:.2f}", f"{1000 * figure.p95:.2f}") if name != RUN else ("", "")
        table.add_row(name, f"{figure.rate:,.0f}", *times, *counted)
    console.print(table)
    for name, ratio in results.ratios.items():
        console.print(f"{name} = {ratio:.2f}" + (f" (bar: {BAR})" if name == "submit / floor" else ""))


def document(results: Results) -> dict[str, object]:
    """Give what is written down."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "machine": {"system": platform.platform(), "processors": os.cpu_count()},
        "server": dict(results.server),
        "sizes": asdict(results.sizes),
        "figures": {name: {"rate": each.rate, **asdict(each)} for name, each in results.figures.items()},
        "counts": {name: asdict(each) for name, each in results.counts.items()},
        "ratios": results.ratios,
        "bar": BAR,
        "is_above_bar": results.is_above_bar,
    }


def write(results: Results, path: Path) -> None:
    """Write a JSON file."""
    path.write_text(f"{json.dumps(document(results), indent=2)}\n", encoding="utf-8")
