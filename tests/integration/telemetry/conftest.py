"""OpenTelemetry's own SDK, with exporters that keep everything in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from attrs import define, field
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentruns.runtime.telemetry.recording import Recording
from agentruns.runtime.telemetry.state import STATE

Attributes = dict[str, Any]


@define
class Telemetry:
    """What the application's exporters have been given.

    Attributes:
        tracers: for spans of the application's own.
    """

    tracers: TracerProvider = field(factory=lambda: TracerProvider(shutdown_on_exit=False))
    reader: InMemoryMetricReader = field(factory=InMemoryMetricReader)
    exporter: InMemorySpanExporter = field(factory=InMemorySpanExporter)
    meters: MeterProvider = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    def recording(self) -> Recording:
        return Recording(self.tracers, self.meters)

    def span(self, name: str) -> Any:
        """Begin a span of the application's own, which is current."""
        return self.tracers.get_tracer("application").start_as_current_span(name)

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Give the spans of a name, in the order in which they began."""
        return sorted((each for each in self.ended if each.name == name), key=lambda each: each.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def tree(self) -> list[tuple[str, str | None]]:
        """Name each span with its parent, in the order in which they began."""
        names = {context_of(each).span_id: each.name for each in self.ended}
        began = sorted(self.ended, key=lambda each: each.start_time or 0)
        return [(each.name, None if each.parent is None else names[each.parent.span_id]) for each in began]

    def points(self) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
        """Give the value of each counter, and the number of values of each histogram, by dimensions."""
        data = self.reader.get_metrics_data()
        scopes = [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        return {
            metric.name: {
                tuple(sorted((point.attributes or {}).items())): getattr(point, "value", getattr(point, "count", 0))
                for point in metric.data.data_points
            }
            for scope in scopes
            for metric in scope.metrics
        }

    def spread(self, name: str) -> tuple[int, float, float, float]:
        """Give count, sum, least and greatest of the values of a histogram without dimensions."""
        data = self.reader.get_metrics_data()
        scopes = [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        points = [
            point
            for scope in scopes
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
        if not points:
            return 0, 0, 0, 0
        (point,) = points
        assert isinstance(point, HistogramDataPoint)
        return point.count, point.sum, point.min, point.max

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


def context_of(span: ReadableSpan) -> Any:
    context = span.get_span_context()
    assert context is not None
    return context


def attributes_of(span: ReadableSpan) -> Attributes:
    return dict(span.attributes or {})


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    """Record for the length of a test; what a hook of ours gets wrong is passed over for a run, and not for a test."""
    made = Telemetry()
    recording = made.recording()
    monkeypatch.setattr(STATE, "recording", recording)
    yield made
    made.close()
    assert not recording._has_warned


@pytest.fixture
def attributes() -> Callable[[ReadableSpan], Attributes]:
    return attributes_of


@pytest.fixture
def points_of(telemetry: Telemetry) -> Callable[..., Mapping[Any, float]]:
    """Give the points of one instrument, by the values of the dimensions named."""

    def call(name: str, *dimensions: str) -> Mapping[Any, float]:
        found = telemetry.points().get(name, {})
        for key in found:
            assert {each for each, _ in key} == {f"agentruns.{each}" for each in dimensions}
        return {tuple(dict(key)[f"agentruns.{each}"] for each in dimensions): value for key, value in found.items()}

    return call
