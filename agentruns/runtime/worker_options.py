"""How a worker works."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attrs import field, frozen
from sqlalchemy import URL

from agentruns.errors import InvalidOptionError
from agentruns.runtime.engine import check_url
from agentruns.store.options import check_count, check_duration, check_flag

_POLL_INTERVAL_LISTENING: Final = timedelta(seconds=15)


@frozen(kw_only=True)
class AgentWorkerOptions:
    """Say how a worker works.

    Attributes:
        slots: runs that are driven at once.
        poll_interval: pause of an idle worker, jittered; polling alone is always sufficient.
        poll_interval_listening: the same where wake-ups are heard; at least ``poll_interval``, at most 5 minutes. What
            opens sooner, as far as it is known, is looked for then.
        listens: whether the worker is woken when something is ready. It takes a connection of its own.
        listen_url: of a direct connection for that, never through a pooler of transactions; by default that of the
            store's options, and else the store's own.
        drain_timeout: how long running nodes may finish after a shutdown was asked for.
        supervision_interval: how often timers, expired interrupts and deadlines of the tenants are looked for;
            ``None`` leaves that to others.
        schema_interval: how often the schema is verified; one that is broken drains the worker. ``None`` never looks.
    """

    slots: int = 4
    poll_interval: timedelta = timedelta(seconds=1)
    poll_interval_listening: timedelta = field()
    listens: bool = True
    listen_url: str | URL | None = field(default=None, repr=False)
    drain_timeout: timedelta = timedelta(seconds=30)
    supervision_interval: timedelta | None = timedelta(seconds=1)
    schema_interval: timedelta | None = timedelta(minutes=5)

    @poll_interval_listening.default
    def _poll_rarely(self) -> timedelta:
        own = self.poll_interval
        return max(own, _POLL_INTERVAL_LISTENING) if type(own) is timedelta else _POLL_INTERVAL_LISTENING

    def __attrs_post_init__(self) -> None:
        check_count("slots", self.slots, low=1, high=1024)
        least = timedelta(milliseconds=1)
        check_duration("poll_interval", self.poll_interval, low=least, high=timedelta(minutes=1))
        rarely, high = self.poll_interval_listening, timedelta(minutes=5)
        check_duration("poll_interval_listening", rarely, low=self.poll_interval, high=high)
        self._check_listening()
        check_duration("drain_timeout", self.drain_timeout, low=timedelta(0), high=timedelta(days=1))
        if self.supervision_interval is not None:
            low, high = timedelta(milliseconds=100), timedelta(hours=1)
            check_duration("supervision_interval", self.supervision_interval, low=low, high=high)
        if self.schema_interval is not None:
            low, high = timedelta(milliseconds=100), timedelta(days=1)
            check_duration("schema_interval", self.schema_interval, low=low, high=high)

    def _check_listening(self) -> None:
        check_flag("listens", self.listens)
        if self.listen_url is not None:
            check_url("listen_url", self.listen_url)
            if not self.listens:
                bound = "none for a worker that does not listen"
                raise InvalidOptionError(option="listen_url", reason="not_used", value="not shown", bound=bound)
