"""Show everything in one table of bars, write it down and draw it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

from attrs import asdict

from benchmarks import bars, plot, report, scale, soak
from benchmarks.everything import Everything
from benchmarks.machine import machine, versions
from benchmarks.scale import Scale
from benchmarks.soak import Soak


def conclude(found: Everything, *, json_file: Path | None, svg_file: Path | None) -> NoReturn:
    """Say what was found, last of all the bars, and end with 1 if one of them is missed."""
    report.show(found.submissions)
    report.show(found.drives)
    soak.show(found.soak)
    scale.show(found.scale)
    held = bars.bars(found)
    bars.show(held)
    if json_file is not None:
        _write(document(found), json_file)
    if svg_file is not None:
        callers, server = found.drives.sizes.callers, found.drives.server["server_version"]
        plot.write(found.figures, svg_file, title=f"{callers} callers, one process, PostgreSQL {server}")
    sys.exit(0 if all(each.is_held for each in held) else 1)


def conclude_scale(scaled: Scale, soaked: Soak, *, json_file: Path | None) -> NoReturn:
    """Say what was found, and end with 1 if claims take too long beside many ended runs."""
    soak.show(soaked)
    scale.show(scaled)
    if json_file is not None:
        _write({**_circumstances(), **_scaled(scaled, soaked)}, json_file)
    sys.exit(0 if scaled.claim_ratio <= scale.CLAIM_BAR else 1)


def document(found: Everything) -> dict[str, object]:
    """Give what is written down."""
    held = bars.bars(found)
    return {
        **_circumstances(),
        "server": dict(found.drives.server),
        "bars": [{**asdict(each), "is_held": each.is_held} for each in held],
        "is_above_bar": all(each.is_held for each in held),
        "submissions": report.measured(found.submissions),
        "drives": report.measured(found.drives),
        "waiting": {"ours": asdict(found.waiting), "dbos": found.dbos_waiting and asdict(found.dbos_waiting)},
        "imports": asdict(found.imports),
        **_scaled(found.scale, found.soak),
    }


def _circumstances() -> dict[str, object]:
    return {"versions": versions(), "machine": machine()}


def _scaled(scaled: Scale, soaked: Soak) -> dict[str, object]:
    return {"scale": {**asdict(scaled), "claim_ratio": scaled.claim_ratio}, "soak": asdict(soaked)}


def _write(found: dict[str, object], path: Path) -> None:
    path.write_text(f"{json.dumps(found, indent=2)}\n", encoding="utf-8")
