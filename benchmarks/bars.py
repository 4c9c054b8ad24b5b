"""One table of bars: what was measured, what it must reach or may not exceed, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen
from rich.console import Console
from rich.table import Table

from benchmarks import names, scale
from benchmarks.everything import Everything
from benchmarks.ratios import Ratio

_MILLI: Final = 1_000
_KIB: Final = 1_024


@frozen(kw_only=True)
class Bar:
    """One figure beside its bar.

    Attributes:
        what: was measured.
        figure: in ``unit``.
        bar: what the figure is held against, ``None`` where it only stands beside others.
        is_least: whether the figure must reach the bar; otherwise it may not exceed it.
    """

    what: str
    figure: float
    unit: str
    bar: float | None
    is_least: bool

    @property
    def is_held(self) -> bool:
        """Whether the figure keeps to its bar."""
        if self.bar is None:
            return True
        return self.figure >= self.bar if self.is_least else self.figure <= self.bar


def bars(found: Everything) -> tuple[Bar, ...]:
    """Hold every figure against its bar; what was left out is held against nothing."""
    return (
        *_least(found.submissions.ratios),
        *_least(found.drives.ratios),
        *_alone(found),
        *(_most(name, each.commits, "", each.most) for name, each in found.drives.ceilings.items()),
        *_others(found),
    )


def _least(ratios: Mapping[str, Ratio]) -> Iterator[Bar]:
    for name, ratio in ratios.items():
        if not name.endswith(", of work"):
            yield Bar(what=name, figure=ratio.median, unit="x", bar=ratio.bar, is_least=True)


def _most(what: str, figure: float, unit: str, bar: float | None) -> Bar:
    return Bar(what=what, figure=figure, unit=unit, bar=bar, is_least=False)


def _alone(found: Everything) -> Iterator[Bar]:
    figures = found.figures
    for name, bar in (
        (names.SUBMIT_ALONE, 2.0),
        (names.ENQUEUE_ALONE, None),
        (names.RUN_ALONE, 8.0),
        (names.DBOS_RUN_ALONE, None),
        (names.LANGGRAPH_ALONE, None),
    ):
        if name in figures:
            yield _most(f"{name}, median", _MILLI * figures[name].median, "ms", bar)


def _others(found: Everything) -> Iterator[Bar]:
    yield _most("disk of a run of 3 nodes, 1 KB of input", found.soak.disk.total / _KIB, "KiB", 16.0)
    ended = f"{found.scale.ended:,} ended runs"
    yield _most(f"claim p99 beside {ended} / beside none", found.scale.claim_ratio, "x", scale.CLAIM_BAR)
    waiting = found.waiting
    yield _most("submission to first node, idle worker, median", _MILLI * waiting.median, "ms", 20.0)
    yield _most("submission to first node, idle worker, p99", _MILLI * waiting.p99, "ms", 60.0)
    if found.dbos_waiting is not None:
        yield _most("dbos: the same through its queue, median", _MILLI * found.dbos_waiting.median, "ms", None)
        yield _most("dbos: the same through its queue, p99", _MILLI * found.dbos_waiting.p99, "ms", None)
    yield _most("import of agentruns", found.imports.package, "s", 0.4)
    yield _most("import of agentruns and of every public name", found.imports.names, "s", None)


def show(found: Sequence[Bar]) -> None:
    """Write the table."""
    table = Table(title="bars")
    for column in ("what", "figure", "bar", "held"):
        table.add_column(column, justify="left" if column == "what" else "right", no_wrap=True)
    for each in found:
        table.add_row(each.what, f"{each.figure:.2f} {each.unit}".strip(), *_held(each))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(table)


def _held(each: Bar) -> tuple[str, str]:
    if each.bar is None:
        return "", ""
    return f"{'at least' if each.is_least else 'at most'} {each.bar:g}", "yes" if each.is_held else "NO"
