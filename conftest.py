"""Settings of the whole suite: how many examples Hypothesis tries, chosen by ``HYPOTHESIS_PROFILE``; and no garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None)
settings.register_profile("nightly", max_examples=600, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage among what stays: what is imported, and the tests themselves."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected
