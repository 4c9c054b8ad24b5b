"""A window holds as many whole supersteps as fit; a larger superstep is cut into pages of events."""

from __future__ import annotations

import pytest

from agentruns.runtime.replay_windows import ReadingBounds, fitting, pages_of, window_of
from agentruns.store.journal import SuperstepSize, Window

BOUNDS = ReadingBounds(window_events=10, maximum_bytes=100)
NO_LIMIT = 2**62


def step(superstep: int, *, events: int = 3, size: int = 10, until: int | None = 7) -> SuperstepSize:
    return SuperstepSize(superstep=superstep, until_sequence=until, event_count=events, byte_count=size, result_bytes=0)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([step(0), step(1), step(2), step(3)], 3),
        ([step(0, events=10), step(1, events=0)], 2),
        ([step(0, events=11)], 0),
        ([step(0, size=50), step(1, size=50), step(2, size=0)], 3),
        ([step(0, size=50), step(1, size=51)], 1),
        ([step(0, size=101)], 0),
        ([], 0),
    ],
)
def test_as_many_whole_supersteps_are_one_window_as_fit(sizes: list[SuperstepSize], count: int) -> None:
    assert fitting(sizes, BOUNDS) == count


def test_the_defaults_are_1024_events_and_8_mib_and_more_supersteps_are_measured_than_fit() -> None:
    bounds = ReadingBounds()
    assert (bounds.short_events, bounds.window_events, bounds.maximum_bytes) == (512, 1024, 8 * 1024 * 1024)
    assert (bounds.rounds, bounds.supersteps) == (8, 342)


def test_a_window_of_closed_supersteps_ends_with_the_checkpoint_of_the_next_one() -> None:
    window = window_of([step(4, until=20), step(5, until=23)], after=17, head=99, bounds=BOUNDS)
    assert window == Window(
        after_sequence=17,
        until_sequence=23,
        first_superstep=4,
        last_superstep=6,
        maximum_events=10,
        maximum_bytes=100,
    )


def test_the_current_superstep_ends_at_the_head_that_was_seen() -> None:
    window = window_of([step(4, until=20), step(5, until=None)], after=17, head=22, bounds=BOUNDS)
    assert (window.until_sequence, window.first_superstep, window.last_superstep) == (22, 4, 5)


def page(after: int, until: int, *, last: int = 4) -> Window:
    return Window(
        after_sequence=after,
        until_sequence=until,
        first_superstep=4,
        last_superstep=last,
        maximum_events=NO_LIMIT,
        maximum_bytes=NO_LIMIT,
    )


def test_the_last_page_of_a_superstep_has_the_checkpoint_that_it_made() -> None:
    large = Window(after_sequence=10, until_sequence=14, first_superstep=4, last_superstep=5)
    events = [(11, 60), (12, 40), (13, 101), (14, 1)]
    assert pages_of(events, large, BOUNDS) == [page(10, 12), page(12, 13), page(13, 14, last=5)]
    assert pages_of(events[:2], large, BOUNDS) == [page(10, 12)]
    assert pages_of([], large, BOUNDS) == []
