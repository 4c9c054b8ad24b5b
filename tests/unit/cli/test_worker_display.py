"""What a worker shows: lines for programs that a slow reader cannot hold up, a picture, and a few words."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentruns.cli import worker_lines
from agentruns.cli.options import Settings
from agentruns.cli.output import Output
from agentruns.cli.worker_display import FewWords
from agentruns.cli.worker_lines import KINDS, EventLines, members_of
from agentruns.cli.worker_table import WorkerTotals, picture
from agentruns.domain.identity import CapabilityReference
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import CapabilityName, NodeId, TenantId, Version
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.driven_runs import DrivenRun
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_events import (
    DriveEnded,
    HealthChanged,
    RunClaimed,
    RunsSupervised,
    WorkerDraining,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
)
from agentruns.runtime.worker_health import WorkerHealth, WorkerStatus

ACME = TenantId("acme")
RUN = "01890000-0000-7000-8000-000000000000"
IDS: dict[str, Any] = {"tenant_id": ACME, "run_id": RunId.parse(RUN), "epoch": FencingEpoch(3)}
SHOWN = {"tenant_id": "acme", "run_id": RUN, "epoch": 3}
AWAY = WorkerHealth(status=WorkerStatus.UNAVAILABLE, reason="store_unavailable")
READY = WorkerHealth(status=WorkerStatus.READY)
NOW = Timestamp.parse("2026-01-02T03:04:05.000006Z")


def ended(outcome: AgentLoopOutcome | None, **error: Any) -> DriveEnded:
    return DriveEnded(**IDS, outcome=outcome, duration=timedelta(seconds=1.5), **error)


@pytest.mark.parametrize(
    ("event", "kind", "members"),
    [
        (
            WorkerStarted(tenants=(ACME, TenantId("globex")), graph_count=2, slots=4),
            "worker_started",
            {"tenants": ["acme", "globex"], "graphs": 2, "slots": 4},
        ),
        (RunClaimed(**IDS), "run_claimed", SHOWN),
        (
            ended(AgentLoopOutcome.CANCELLATION_CONFIRMED),
            "drive_ended",
            {**SHOWN, "outcome": "cancellation_confirmed", "error": None, "reason": None, "seconds": 1.5},
        ),
        (
            ended(None, error="LeaseLostError", reason="expired"),
            "drive_ended",
            {**SHOWN, "outcome": None, "error": "LeaseLostError", "reason": "expired", "seconds": 1.5},
        ),
        (
            RunsSupervised(tenant_id=ACME, cancellations_requested=1, runs_failed=2, timers_fired=3, error_count=4),
            "runs_supervised",
            {"tenant_id": "acme", "cancellations_requested": 1, "runs_failed": 2, "timers_fired": 3, "errors": 4},
        ),
        (HealthChanged(health=AWAY), "health_changed", {"health": "unavailable", "reason": "store_unavailable"}),
        (WorkerDraining(running=2), "worker_draining", {"running": 2}),
        (WorkerStopped(), "worker_stopped", {"error": None}),
    ],
)
def test_the_shape_of_each_event(event: WorkerEvent, kind: str, members: dict[str, Any]) -> None:
    assert (KINDS[type(event)], members_of(event)) == (kind, members)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    source, sink = os.pipe()
    yield source, sink
    for descriptor in (source, sink):
        try:
            os.close(descriptor)
        except OSError:
            continue


def clock() -> DatabaseClock:
    stopped = DatabaseClock(monotonic=lambda: 0.0)
    stopped.observe(NOW)
    return stopped


def test_a_line_has_kind_and_instant_before_its_members(pipe: tuple[int, int]) -> None:
    lines = EventLines(clock(), ShutdownSignal(), descriptor=pipe[1])

    async def work() -> None:
        async with lines.showing(None):  # type: ignore[arg-type]  # it shows what is told, and asks nobody
            lines.on_event(WorkerDraining(running=1))

    asyncio.run(work())
    os.close(pipe[1])
    written = os.read(pipe[0], 4096).decode("ascii")
    assert written == '{"event": "worker_draining", "at": "2026-01-02T03:04:05.000006Z", "running": 1}\n'


def test_a_reader_that_stops_holds_nobody_up_and_is_told_how_much_it_has_missed(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_lines, "MAXIMUM_BEHIND", 100)
    shutdown = ShutdownSignal()
    lines = EventLines(clock(), shutdown, descriptor=pipe[1])
    read: list[str] = []
    # Nothing can be written before somebody reads.
    os.set_blocking(pipe[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe[1], b"\n" * 4096)
    os.set_blocking(pipe[1], True)

    async def work() -> None:
        async with lines.showing(None):  # type: ignore[arg-type]  # see above
            lines.on_event(RunClaimed(**IDS))
            while lines._lines.qsize():  # until the thread tries to write it
                await asyncio.sleep(0.001)
            # More than the queue holds, from the loop itself: it would stand still.
            for _ in range(4_999):
                lines.on_event(RunClaimed(**IDS))
            reading = asyncio.create_task(asyncio.to_thread(_read_all, pipe[0], read))
            while not read:
                await asyncio.sleep(0.01)
            while lines._lines.qsize():
                await asyncio.sleep(0.01)
            lines.on_event(WorkerStopped())
        os.close(pipe[1])
        await reading

    asyncio.run(work())
    events = [json.loads(line) for line in "".join(read).splitlines() if line]
    (gap,) = [event for event in events if event["event"] == "events_lost"]
    assert events[-2:] == [gap, {"event": "worker_stopped", "at": str(NOW), "error": None}]
    assert gap == {"event": "events_lost", "at": str(NOW), "count": 5_000 - (len(events) - 2)}
    assert (gap["count"] > 0, shutdown.is_draining) == (True, False)


def _read_all(source: int, into: list[str]) -> None:
    while data := os.read(source, 65_536):
        into.append(data.decode("ascii"))


def test_a_reader_that_goes_away_drains_the_worker(pipe: tuple[int, int]) -> None:
    shutdown = ShutdownSignal()
    lines = EventLines(clock(), shutdown, descriptor=pipe[1])

    async def work() -> None:
        async with lines.showing(None):  # type: ignore[arg-type]  # see above
            os.close(pipe[0])
            lines.on_event(RunClaimed(**IDS))
            async with asyncio.timeout(20):
                await shutdown.wait_draining()
            lines.on_event(WorkerStopped())

    with pytest.raises(BrokenPipeError):
        asyncio.run(work())


def test_what_nodes_print_meanwhile_is_no_line(pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    lines = EventLines(clock(), ShutdownSignal(), descriptor=pipe[1])

    async def work() -> None:
        async with lines.showing(None):  # type: ignore[arg-type]  # see above
            print("entered")  # noqa: T201 - the point of the test

    asyncio.run(work())
    assert capsys.readouterr() == ("", "entered\n")


def test_totals_count_where_drives_left_their_runs() -> None:
    totals = WorkerTotals()
    for _ in range(9):
        totals.take(RunClaimed(**IDS))
    for outcome in AgentLoopOutcome:
        totals.take(ended(outcome))
    totals.take(ended(None, error="LeaseLostError"))
    totals.take(HealthChanged(health=AWAY))
    assert totals.words == "claimed 9, succeeded 1, failed 1, cancelled 1, waiting 1, given back 5"


def driven(tenant: str, *nodes: str) -> DrivenRun:
    graph = CapabilityReference(name=CapabilityName("triage"), version=Version("1.0.0")) if nodes else None
    names = tuple(map(NodeId, nodes))
    return DrivenRun(
        tenant_id=TenantId(tenant),
        run_id=IDS["run_id"],
        epoch=IDS["epoch"],
        claimed_at=NOW,
        age=timedelta(minutes=1, seconds=2.9),
        graph=graph,
        nodes=names,
    )


def drawn(health: WorkerHealth, *drives: DrivenRun, room: int = 10) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(picture(health, WorkerTotals(claimed=1), drives, room=room))
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip(" ─")]


def test_a_picture_has_the_state_the_totals_and_a_row_a_run() -> None:
    counts = "claimed 1, succeeded 0, failed 0, cancelled 0, waiting 0, given back 0"
    assert drawn(AWAY) == [f"unavailable (store_unavailable): {counts}"]
    assert drawn(READY, driven("acme", "count", "sort"), driven("globex")) == [
        f"ready: {counts}",
        "tenant run graph nodes since epoch",
        f"acme {RUN} triage 1.0.0 count, sort 0:01:02 3",
        f"globex {RUN} - - 0:01:02 3",
    ]


def test_runs_for_which_there_is_no_room_are_counted() -> None:
    lines = drawn(READY, *(driven(f"t{number}", "a") for number in range(5)), room=3)
    assert [line.split()[0] for line in lines[2:]] == ["t0", "t1", "t2", "and"]
    assert lines[-1] == "and 2 more"


def test_a_few_words_say_that_health_is_lost_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    words = FewWords(Output(Settings()))
    for health in (READY, AWAY, READY):
        words.on_event(HealthChanged(health=health))
    words.on_event(WorkerDraining(running=0))
    assert capsys.readouterr().err == "Health: unavailable (store_unavailable)\nHealth: ready\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_line_that_cannot_be_written_costs_no_run_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    shutdown = ShutdownSignal()
    with Path("/dev/full").open("wb", buffering=0) as full:
        lines = EventLines(clock(), shutdown, descriptor=full.fileno())

        async def work() -> None:
            async with lines.showing(None):  # type: ignore[arg-type]  # see above
                for _ in range(3):
                    lines.on_event(RunClaimed(**IDS))

        asyncio.run(work())
    assert not shutdown.is_draining
    assert [(record.message, record.__dict__["error"]) for record in caplog.records] == [
        ("an event cannot be written", "ENOSPC")
    ]
