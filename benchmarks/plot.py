"""A plot of our rates beside the peers' and the floor's: an SVG of one bar for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from attrs import frozen

from benchmarks import names
from benchmarks.measure import Figure

#: What is drawn below one another: a title, and the cases of each bar, of which the fastest counts.
_GROUPS: Final[tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]] = (
    (
        "submit: 1 KB, calls/s",
        ((names.SUBMIT,), (names.SUBMIT_FLOOR,), (names.ENQUEUE_ASYNC, names.ENQUEUE_THREADS), (names.DEFER,)),
    ),
    ("retry of a known key, calls/s", ((names.RETRY,), (names.AGAIN_READ_ASYNC, names.AGAIN_READ_THREADS))),
    ("load, calls/s", ((names.LOAD,), (names.LOAD_FLOOR,), (names.STATUS_ASYNC, names.STATUS_THREADS))),
    (
        "run of 3 nodes, runs/s",
        (
            (names.READY,),
            (names.RUN,),
            (names.READY_FLOOR,),
            (names.DBOS_RUN_ASYNC, names.DBOS_RUN_THREADS),
            (names.DBOS_QUEUE_ASYNC, names.DBOS_QUEUE_THREADS),
            (names.LANGGRAPH_SYNC,),
        ),
    ),
    ("run of 16 parallel nodes, runs/s", ((names.FAN,), (names.LANGGRAPH_FAN,))),
    (
        "one caller alone, calls/s",
        (
            (names.SUBMIT_ALONE,),
            (names.ENQUEUE_ALONE,),
            (names.RUN_ALONE,),
            (names.DBOS_RUN_ALONE,),
            (names.LANGGRAPH_ALONE,),
        ),
    ),
)
_COLOURS: Final = {"floor": "#9e9e9e", "dbos": "#d98c3f", "langgraph": "#7a6fb0", "procrastinate": "#5c9e6e"}
_OURS: Final = "#2f6db5"
_WIDTH: Final = 900
_LEFT: Final = 340
_LONGEST: Final = 440
_LINE: Final = 22
_HEAD: Final = 34


@frozen
class _Canvas:
    parts: list[str]

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> None:
        attributes = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="{weight}"'
        self.parts.append(f"<text {attributes}>{escape(words)}</text>")

    def bar(self, y: float, share: float, colour: str) -> None:
        size = f'width="{max(1.0, _LONGEST * share):.1f}" height="{_LINE - 6}"'
        self.parts.append(f'<rect x="{_LEFT}" y="{y:.0f}" {size} fill="{colour}"/>')


def svg(figures: Mapping[str, Figure], *, title: str) -> str:
    """Draw what was measured; each group of bars has a scale of its own."""
    canvas, y = _Canvas([]), _HEAD
    canvas.text(12, 22, title, weight="bold")
    for name, bars in _groups(figures):
        canvas.text(12, y + _LINE, name, weight="bold")
        y += _HEAD
        longest = max(rate for _, rate in bars)
        for case, rate in bars:
            canvas.text(_LEFT - 8, y + 13, case, anchor="end")
            canvas.bar(y, rate / longest, _COLOURS.get(case.partition(":")[0], _OURS))
            canvas.text(_LEFT + _LONGEST * rate / longest + 6, y + 13, f"{rate:,.0f}")
            y += _LINE
    size = f'width="{_WIDTH}" height="{y + 12}" viewBox="0 0 {_WIDTH} {y + 12}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *canvas.parts, "</svg>", ""])


def _groups(figures: Mapping[str, Figure]) -> Iterator[tuple[str, Sequence[tuple[str, float]]]]:
    for name, cases in _GROUPS:
        bars = [
            max(((case, figures[case].rate) for case in ways if case in figures), key=lambda each: each[1])
            for ways in cases
            if any(case in figures for case in ways)
        ]
        if bars:
            yield name, bars


def write(figures: Mapping[str, Figure], path: Path, *, title: str) -> None:
    """Write a file."""
    path.write_text(svg(figures, title=title), encoding="utf-8")
