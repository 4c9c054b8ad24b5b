"""Telemetry that raises wherever it is called changes nothing for a run, and nothing leaves the process by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from agentruns.domain.graph.returns import Finish
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.telemetry.recording import Recording
from agentruns.runtime.telemetry.state import STATE, found
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
MESSAGE = "what-the-exporter-says"


class BreaksOnStart(SpanProcessor):
    def on_start(self, *_arguments: Any, **_keywords: Any) -> None:
        raise RuntimeError(MESSAGE)


class BreaksOnEnd(SpanProcessor):
    def on_end(self, *_arguments: Any) -> None:
        raise RuntimeError(MESSAGE)


class BreaksOnExport(SpanExporter):
    def export(self, *_arguments: Any) -> Any:
        raise RuntimeError(MESSAGE)


class BreaksOnSampling(Sampler):
    def should_sample(self, *_arguments: Any, **_keywords: Any) -> Any:
        raise RuntimeError(MESSAGE)

    def get_description(self) -> str:
        return "breaks"


class BreaksOnCount:
    """Stand for an instrument whose reader raises."""

    def add(self, *_arguments: Any) -> None:
        raise RuntimeError(MESSAGE)

    record = add


def with_processor(processor: SpanProcessor) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


BROKEN = {
    "start": lambda: with_processor(BreaksOnStart()),
    "end": lambda: with_processor(BreaksOnEnd()),
    "export": lambda: with_processor(SimpleSpanProcessor(BreaksOnExport())),
    "sampling": lambda: TracerProvider(sampler=BreaksOnSampling(), shutdown_on_exit=False),
}


def three() -> Any:
    return chain(a=lambda _context: {"a": 1}, b=lambda _context: {"b": 2}, c=lambda _context: Finish({"sum": 3}))


async def all_of_it(world: DriveWorld) -> None:
    """Submit in every way, drive and read."""
    key = AgentSubmissionKey.generate()
    admitted = await world.runs.submit(key, world.request())
    await world.runs.submit_many([(key, world.request())])
    run_id = admitted.snapshot.provenance.run_id
    result = await world.driven(run_id)
    assert result.outcome is AgentLoopOutcome.SUCCEEDED
    assert (result.report.commits, result.report.node_attempts_completed) == (4, 3)
    assert (await world.loaded(run_id)).status.value == "succeeded"


@pytest.mark.parametrize("where", BROKEN)
def test_a_processor_that_raises_changes_nothing(
    in_world: InWorld,
    telemetry: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    provider = BROKEN[where]()
    monkeypatch.setattr(STATE, "recording", Recording(provider, telemetry.meters))
    with caplog.at_level(logging.WARNING, logger="agentruns"):
        in_world(all_of_it, three(), lease=LONG)
    ours = [record for record in caplog.records if record.name.startswith("agentruns.")]
    # The SDK's own processor catches what its exporter raises.
    expected = [] if where == "export" else ["telemetry fails and is passed over"]
    assert [record.getMessage() for record in ours] == expected
    assert [record.__dict__["error"] for record in ours] == ["RuntimeError"] * len(expected)
    assert MESSAGE not in "".join(str(record.__dict__) for record in ours)
    provider.shutdown()


def test_an_instrument_that_raises_changes_nothing(
    in_world: InWorld, telemetry: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = telemetry.recording()
    for instruments in (broken._counters, broken._histograms):
        instruments.update(dict.fromkeys(instruments, BreaksOnCount()))
    monkeypatch.setattr(STATE, "recording", broken)
    with caplog.at_level(logging.WARNING, logger="agentruns"):
        in_world(all_of_it, three(), lease=LONG)
    assert [r.getMessage() for r in caplog.records if r.name.startswith("agentruns.")] == [
        "telemetry fails and is passed over"
    ]


def test_a_provider_that_cannot_be_set_up_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def configured() -> None:
        asked.append(1)
        raise RuntimeError(MESSAGE)

    monkeypatch.setattr(STATE, "recording", None)
    monkeypatch.setattr(STATE, "looks_at", 0.0)
    monkeypatch.setattr("agentruns.runtime.telemetry.state.configured", configured)
    assert [found(), found()] == [None, None]
    assert len(asked) == 1
    assert [record.getMessage() for record in caplog.records] == ["telemetry cannot be set up and is left out"]
