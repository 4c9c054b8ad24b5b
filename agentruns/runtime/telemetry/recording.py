"""Speak to OpenTelemetry. No other module does, and nothing that it raises leaves this one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import Final

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentruns.runtime.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS

_log: Final = logging.getLogger("agentruns.runtime.telemetry")

SCOPE: Final = "agentruns"
#: What stands in for a provider that nobody has set; their classes are not public.
_STAND_INS: Final = ("Proxy", "NoOp")
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_LENGTH: Final = 55
_OURS: Final = contexts.create_key("agentruns-span")

#: What an attribute may hold; ``None`` leaves it out.
Value = str | int | float | None


class Recording:
    """Make spans and count, under one scope.

    A provider, processor or exporter that raises changes nothing for a run: it is told of once, and passed over.
    """

    def __init__(self, tracers: trace.TracerProvider, meters: metrics.MeterProvider) -> None:
        meter = meters.get_meter(SCOPE)
        self._tracer = tracers.get_tracer(SCOPE)
        self._counters = {
            name: meter.create_counter(name, unit=each.unit, description=each.description)
            for name, each in COUNTERS.items()
        }
        self._histograms = {
            name: meter.create_histogram(name, unit=each.unit, description=each.description)
            for name, each in HISTOGRAMS.items()
        }
        self._gauges = {
            name: meter.create_gauge(name, unit=each.unit, description=each.description)
            for name, each in GAUGES.items()
        }
        self._has_warned = False

    @contextmanager
    def passing_over(self) -> Iterator[None]:
        """Do what may fail in the application's telemetry, and go on in any case."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no run depends on who watches it
            if not self._has_warned:
                self._has_warned = True
                _log.warning("telemetry fails and is passed over", extra={"error": type(error).__name__})

    # --- metrics -----------------------------------------------------------------------------------------------------

    def add(self, name: str, amount: int = 1, /, **dimensions: Value) -> None:
        """Count."""
        with self.passing_over():
            self._counters[name].add(amount, _attributes(dimensions))

    def record(self, name: str, value: float, /, **dimensions: Value) -> None:
        """Add a value to a distribution."""
        with self.passing_over():
            self._histograms[name].record(value, _attributes(dimensions))

    def set(self, name: str, value: float) -> None:
        """Say what a level is now."""
        with self.passing_over():
            self._gauges[name].set(value)

    # --- spans -------------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        attributes: Mapping[str, Value],
        *,
        is_root: bool = False,
        submitter: str | None = None,
        start_time: int | None = None,
    ) -> trace.Span:
        """Start a span, which is not made current.

        Args:
            name: of the span.
            attributes: without the scope's prefix.
            is_root: begin a trace of its own, whatever is current: a worker's work is no part of what started it.
            submitter: the ``traceparent`` of a span to link to.
            start_time: nanoseconds since the epoch, where the span is told of afterwards.
        """
        return self._tracer.start_span(
            name,
            context=contexts.Context() if is_root else None,
            attributes=_attributes(attributes),
            links=[trace.Link(each) for each in _parsed(submitter)],
            start_time=start_time,
        )

    def enter(self, span: trace.Span) -> Token[contexts.Context]:
        """Make a span current, so that what the application records now is part of it."""
        return contexts.attach(contexts.set_value(_OURS, span, trace.set_span_in_context(span)))

    def leave(self, token: Token[contexts.Context]) -> None:
        """Undo :meth:`enter`."""
        contexts.detach(token)

    def note(self, span: trace.Span, attributes: Mapping[str, Value]) -> None:
        """Add attributes to a span."""
        span.set_attributes(_attributes(attributes))

    def note_entered(self, attributes: Mapping[str, Value], *, submitter: str | None = None) -> None:
        """Add attributes, and a link, to the span of ours that was entered last; the application's are left alone."""
        with self.passing_over():
            span = contexts.get_value(_OURS)
            if isinstance(span, trace.Span):
                self.note(span, attributes)
                for each in _parsed(submitter):
                    span.add_link(each)

    def fail(self, span: trace.Span) -> None:
        """Say that a span went wrong, without a word of what was raised: that may hold anything."""
        span.set_status(trace.StatusCode.ERROR)

    def trace_context(self) -> str | None:
        """Give the W3C ``traceparent`` of the span that is current; ``None`` without one."""
        carrier: dict[str, str] = {}
        with self.passing_over():
            _PROPAGATOR.inject(carrier)
        traceparent = carrier.get("traceparent", "")
        # A later version of the standard may be longer; the column holds this one, and no run fails for it.
        return traceparent if len(traceparent) == _LENGTH else None


def configured() -> Recording | None:
    """Record with the application's providers, once it has set one of them; the other may follow."""
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if _is_stand_in(tracers) and _is_stand_in(meters):
        return None
    return Recording(tracers, meters)


def _is_stand_in(provider: object) -> bool:
    return type(provider).__name__.lstrip("_").startswith(_STAND_INS)


def _attributes(values: Mapping[str, Value]) -> dict[str, str | int | float]:
    return {f"{SCOPE}.{name}": value for name, value in values.items() if value is not None}


def _parsed(traceparent: str | None) -> Iterator[trace.SpanContext]:
    """Read a stored context; it is no evidence, so what is none is nobody's."""
    if isinstance(traceparent, str):
        extracted = _PROPAGATOR.extract({"traceparent": traceparent}, contexts.Context())
        span = trace.get_current_span(extracted).get_span_context()
        if span.is_valid:
            yield span
