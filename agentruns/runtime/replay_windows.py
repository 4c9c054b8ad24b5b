"""Cut a long history into windows: where they are cut changes nothing but what is held at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from agentruns.store.journal import SuperstepSize, Window
from agentruns.store.statements.history import SHORT_BYTES, SHORT_EVENTS

_NO_LIMIT: Final = 2**62
#: A superstep has a start, a completion and a barrier at least, but for the current one.
_FEWEST_EVENTS: Final = 3


@frozen(kw_only=True)
class ReadingBounds:
    """Say how much of a history is read at once.

    Attributes:
        short_events: a run with at most so many, and ``maximum_bytes``, is read in one statement.
        window_events: of a window of a longer one.
        maximum_bytes: of event data and bodies, in either.
        rounds: how often a run that goes on meanwhile is followed.
    """

    short_events: int = SHORT_EVENTS
    window_events: int = 1024
    maximum_bytes: int = SHORT_BYTES
    rounds: int = 8

    @property
    def supersteps(self) -> int:
        """How many supersteps are measured for one window: more than fit into it."""
        return self.window_events // _FEWEST_EVENTS + 1


def fitting(sizes: Sequence[SuperstepSize], bounds: ReadingBounds) -> int:
    """Count how many supersteps, from the first one on, fit into a window; none when the first one alone is larger."""
    events = size = 0
    for count, each in enumerate(sizes):
        events, size = events + each.event_count, size + each.byte_count
        if events > bounds.window_events or size > bounds.maximum_bytes:
            return count
    return len(sizes)


def window_of(sizes: Sequence[SuperstepSize], *, after: int, head: int, bounds: ReadingBounds) -> Window:
    """Give the window of whole supersteps that follow one another; the current one ends at the head that was pinned."""
    last = sizes[-1]
    is_closed = last.until_sequence is not None
    return Window(
        after_sequence=after,
        until_sequence=head if last.until_sequence is None else last.until_sequence,
        first_superstep=sizes[0].superstep,
        # The checkpoint that ends a superstep is a row of the next one.
        last_superstep=last.superstep + is_closed,
        maximum_events=bounds.window_events,
        maximum_bytes=bounds.maximum_bytes,
    )


def pages_of(events: Sequence[tuple[int, int]], step: Window, bounds: ReadingBounds) -> list[Window]:
    """Cut the next events of one superstep, given with their sizes, into pages; an event that is larger is one."""
    pages: list[Window] = []
    after, held, size = step.after_sequence, step.after_sequence, 0
    for sequence, weight in events:
        if held > after and size + weight > bounds.maximum_bytes:
            pages.append(_page(step, after=after, until=held))
            after, size = held, 0
        held, size = sequence, size + weight
    if held > after:
        pages.append(_page(step, after=after, until=held))
    return pages


def _page(step: Window, *, after: int, until: int) -> Window:
    return Window(
        after_sequence=after,
        until_sequence=until,
        first_superstep=step.first_superstep,
        last_superstep=step.last_superstep if until == step.until_sequence else step.first_superstep,
        maximum_events=_NO_LIMIT,
        maximum_bytes=_NO_LIMIT,
    )
