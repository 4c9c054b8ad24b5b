"""OpenTelemetry is optional: without it, and without a provider, nothing is made; with one, it is found."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from agentruns.runtime.telemetry import drives
from agentruns.runtime.telemetry.calls import observed_load, observed_set, observed_submission, trace_context
from agentruns.runtime.telemetry.observation import UNOBSERVED
from agentruns.runtime.telemetry.state import STATE
from agentruns.runtime.telemetry.upkeep import observed_migration, observed_retention_batch, observed_supervision

WITHOUT_THE_PACKAGE = """
    import sys
    sys.modules["opentelemetry"] = None
    import agentruns
    import agentruns.cli
    from agentruns.runtime.telemetry import calls, state
    assert state.found() is None and state.configured is None
    assert calls.trace_context() is None
    assert not any(name.startswith("opentelemetry.") for name in sys.modules)
"""
WITHOUT_A_PROVIDER = """
    from opentelemetry import trace
    from opentelemetry.trace import NoOpTracerProvider
    from agentruns.runtime.telemetry import state
    assert state.found() is None
    trace.set_tracer_provider(NoOpTracerProvider())
    state.STATE.looks_at = 0.0
    assert state.found() is None
"""
WITH_A_PROVIDER_SET_LATE = """
    from opentelemetry import {kind}
    from opentelemetry.sdk.{module} import {provider}
    from agentruns.runtime.telemetry import state
    assert state.found() is None
    state.STATE.looks_at = float("inf")
    {kind}.set_{setter}_provider({provider}())
    assert state.found() is None
    state.STATE.looks_at = 0.0
    recording = state.found()
    assert recording is not None
    assert state.found() is recording
"""


def runs(script: str) -> None:
    """Run a script in a process of its own: a provider is set once for all of a process."""
    done = subprocess.run(  # noqa: S603  # our own script
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_M1_without_the_package_everything_can_be_imported_and_nothing_is_recorded() -> None:
    runs(WITHOUT_THE_PACKAGE)


def test_without_a_provider_nobody_records() -> None:
    runs(WITHOUT_A_PROVIDER)


@pytest.mark.parametrize(
    ("kind", "module", "provider", "setter"),
    [("trace", "trace", "TracerProvider", "tracer"), ("metrics", "metrics", "MeterProvider", "meter")],
)
def test_a_provider_that_is_set_later_is_found(kind: str, module: str, provider: str, setter: str) -> None:
    runs(WITH_A_PROVIDER_SET_LATE.format(kind=kind, module=module, provider=provider, setter=setter))


def test_one_object_serves_every_call_that_nobody_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STATE, "recording", None)
    monkeypatch.setattr(STATE, "looks_at", float("inf"))
    # What is watched is not looked at: anything will do.
    anything = object()
    watching = (
        observed_submission(anything),  # type: ignore[arg-type]
        observed_set(anything),  # type: ignore[arg-type]
        observed_load(anything),  # type: ignore[arg-type]
        drives.observed_claim(anything),  # type: ignore[arg-type]
        drives.observed_drive(anything),  # type: ignore[arg-type]
        drives.observed_replay(anything, anything),  # type: ignore[arg-type]
        drives.observed_node(anything, anything),  # type: ignore[arg-type]
        drives.observed_lifecycle(anything),  # type: ignore[arg-type]
        observed_supervision(anything),  # type: ignore[arg-type]
        observed_retention_batch(anything),  # type: ignore[arg-type]
        observed_migration(to="head"),
    )
    assert [each is UNOBSERVED for each in watching] == [True] * len(watching)
    with UNOBSERVED as observed:
        assert observed.ended_with(anything) is anything
    assert trace_context() is None
