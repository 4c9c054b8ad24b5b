"""An audit is silent over what the library has written, and reads everything of its scope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Audited = Any


def test_OPS_08_runs_in_every_state_audit_clean(audited: Callable[..., None]) -> None:
    async def work(mixed: Audited) -> None:
        await mixed.bring(1)
        assert [each.sentence for each in await mixed.findings()] == []
        assert (mixed.progress.runs, mixed.progress.unproven, mixed.progress.is_complete) == (10, 10, True)
        assert [each.sentence for each in await mixed.findings(executables=mixed.world.executables)] == []
        assert (mixed.progress.runs, mixed.progress.unproven) == (10, 0)

    audited(work)
