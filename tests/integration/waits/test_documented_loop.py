"""The loop of the how-to runs as it stands, on the waits of its own example."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from types import SimpleNamespace
from typing import Any

from agentruns.domain.waits import InterruptRegistration, NodeWait
from agentruns.testing.drives import TENANT, DriveWorld

InWorld = Callable[..., None]

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "waits.md"


def test_the_loop_over_outstanding_waits_meets_interrupts_and_timers(
    in_world: InWorld, sleeper: Any, payload: Any
) -> None:
    (loop,) = re.findall(r"^(for wait in .*?\n)\n", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"InterruptRegistration": InterruptRegistration}
    exec(f"async def looped(app, tenant_id, run_id):\n{indent(loop, '    ')}", names)  # noqa: S102 - our own document
    sleeping = sleeper(
        lambda: (
            NodeWait.interrupt("approval", request=payload("may I?")),
            NodeWait.timer(due_in=timedelta(hours=1)),
        )
    )

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        assert len(await service.outstanding(TENANT, run_id)) == 2
        await names["looped"](SimpleNamespace(waits=service), TENANT, run_id)

    in_world(work, sleeping.graph(), lease=timedelta(minutes=1))
