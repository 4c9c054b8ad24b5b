"""Let the tests of reading run once for each story."""

from __future__ import annotations

import pytest

from agentruns.testing.stories import STORIES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test that takes ``story`` run once for each of them."""
    if "story" in metafunc.fixturenames:
        metafunc.parametrize("story", list(STORIES))
