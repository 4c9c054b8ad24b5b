"""Show the figures to a person, and write them down for a program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import asdict, frozen
from rich.console import Console
from rich.table import Table

from benchmarks import names
from benchmarks.cases import Sizes
from benchmarks.counts import Count
from benchmarks.drive_cases import DriveSizes
from benchmarks.machine import machine, versions
from benchmarks.measure import Figure
from benchmarks.ratios import Ceiling, Ratio, ceilings, ratios
from benchmarks.worker_cases import Recovery, WorkerSizes

#: What the table needs where nobody's window bounds it.
_WIDTH: Final = 120


@frozen(kw_only=True)
class Results:
    """Everything that one run of the benchmarks found."""

    figures: Mapping[str, Figure]
    rates: Mapping[str, Sequence[float]]
    counts: Mapping[str, Count]
    server: Mapping[str, str]
    sizes: Sizes | DriveSizes | WorkerSizes
    recovery: Recovery | None = None

    @property
    def ceilings(self) -> dict[str, Ceiling]:
        """Give the counts that have a bar."""
        return ceilings(self.counts)

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Give our rates as shares of the floors' and the peer's."""
        return ratios(self.rates)

    @property
    def is_above_bar(self) -> bool:
        """Whether every ratio with a bar reaches it, and no count is above its own."""
        is_kept = all(ceiling.is_kept for ceiling in self.ceilings.values())
        is_kept = is_kept and (self.recovery is None or self.recovery.is_kept)
        return is_kept and all(ratio.is_above_bar for ratio in self.ratios.values())


def show(results: Results) -> None:
    """Write the table."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    table = Table(title=f"{results.sizes.callers} callers, one process, middle of {results.sizes.rounds}")
    for column in ("case", "calls/s", "median ms", "p95 ms", "our µs", "server µs", "commits", "log bytes"):
        table.add_column(column, justify="left" if column == "case" else "right", no_wrap=True)
    for name in names.ORDER:
        if name in results.figures or name in results.counts:
            table.add_row(name, *_measured(name, results.figures.get(name)), *_counted(results.counts.get(name)))
    console.print(table)
    for name, ratio in results.ratios.items():
        bar = "" if ratio.bar is None else f", bar {ratio.bar}"
        console.print(f"{name} = {ratio.median:.2f} ({ratio.lowest:.2f} to {ratio.highest:.2f}{bar})")
    for name, ceiling in results.ceilings.items():
        console.print(f"{name} = {ceiling.commits:.2f} (at most {ceiling.most:.0f})")
    if results.recovery is not None:
        console.print(_recovered(results.recovery))


def _measured(name: str, figure: Figure | None) -> tuple[str, ...]:
    if figure is None:
        return "", "", "", "", ""
    times = (figure.median, figure.p95) if name not in names.WITHOUT_TIMES else ()
    shown = tuple(f"{1000 * each:.2f}" for each in times) or ("", "")
    server = "" if figure.server_seconds is None else f"{1e6 * figure.server_seconds / figure.calls:,.0f}"
    ours = "" if name in names.ELSEWHERE else f"{1e6 * figure.processor_time:,.0f}"
    return f"{figure.rate:,.0f}", *shown, ours, server


def _recovered(found: Recovery) -> str:
    seconds = "never" if found.seconds is None else f"{found.seconds:.1f} s"
    rate = f"{found.rate:,.0f} runs/s before"
    return f"95 % of the rate after a restart of the server: {seconds} (at most {found.most:.0f} s; {rate})"


def _counted(count: Count | None) -> tuple[str, str]:
    return ("", "") if count is None else (f"{count.commits:.2f}", f"{max(0.0, count.log_bytes):,.0f}")


def document(results: Results) -> dict[str, object]:
    """Give what is written down."""
    return {
        "versions": versions(),
        "machine": machine(),
        "server": dict(results.server),
        **measured(results),
        "recovery": None if results.recovery is None else asdict(results.recovery),
        "is_above_bar": results.is_above_bar,
    }


def measured(results: Results) -> dict[str, object]:
    """Give the part of it that says what was measured, and how much."""
    return {
        "sizes": asdict(results.sizes),
        "figures": {
            name: {"rate": each.rate, **asdict(each), "rates": results.rates[name]}
            for name, each in results.figures.items()
        },
        "counts": {name: asdict(each) for name, each in results.counts.items()},
        "ratios": {name: asdict(ratio) for name, ratio in results.ratios.items()},
        "ceilings": {name: asdict(ceiling) for name, ceiling in results.ceilings.items()},
    }


def write(results: Results, path: Path) -> None:
    """Write a JSON file."""
    path.write_text(f"{json.dumps(document(results), indent=2)}\n", encoding="utf-8")
