"""Everything that has a bar is measured in one run; what is measured is not judged here."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

CHECKOUT = Path(__file__).parents[3]
PEERS = all(find_spec(package) is not None for package in ("dbos", "langgraph", "procrastinate"))

BARS = {
    "submit / floor": 0.5,
    "submit_many / submit, alone": 2.0,
    "run of 3 nodes, from ready / floor": 0.8,
    "run of 3 nodes, from ready, 4 x callers": 1.0,
    "superstep, long history / short history": 0.833,
    "submit, alone, median": 2.0,
    "run of 3 nodes, alone, median": 8.0,
    "transactions of a drive of 3 nodes, alone": 6.0,
    "disk of a run of 3 nodes, 1 KB of input": 16.0,
    "claim p99 beside 60 ended runs / beside none": 1.5,
    "submission to first node, idle worker, median": 20.0,
    "submission to first node, idle worker, p99": 60.0,
    "import of agentruns": 0.4,
}
PEER_BARS = {
    "submit / dbos enqueue": 1.5,
    "submit / procrastinate defer": 1.2,
    "retry / dbos enqueue again and status": 3.0,
    "load / dbos status": 5.0,
    "run of 3 nodes, until durable / dbos": 1.5,
    "run of 3 nodes, until durable / langgraph sync": 1.5,
    "run of 3 nodes, from ready / dbos": 5.0,
    "run of 3 nodes, from ready / dbos queue": 10.0,
    "run of 3 nodes, from ready / langgraph sync": 4.0,
    "run of 16 parallel nodes / langgraph": 4.0,
}

DRIVES = {
    "run of 3 nodes, until durable": 8,
    "run of 3 nodes": 8,
    "run of 3 nodes, alone": 4,
    "run of 3 nodes, from ready": 8,
    "run of 3 nodes, from ready, 4 x callers": 8,
    "floor: run of 3 nodes": 2,
    "floor: run of 3 nodes, in sets": 2,
    "drive of 3 nodes": 8,
    "run of 16 parallel nodes": 2,
    "run of 16 parallel nodes, alone": 4,
    "superstep, short history": 40,
    "superstep, long history": 40,
}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is no installed package."""
    monkeypatch.syspath_prepend(CHECKOUT)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("AGENTRUNS_TEST_MAJOR", "18") != "18", reason="its server is of version 18")
def test_everything_is_measured_and_held_against_its_bars(tmp_path: Path) -> None:
    files = {name: tmp_path / f"figures.{name}" for name in ("json", "svg")}
    peers = ["--peers"] if PEERS else []
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-m", "benchmarks", "all", "--quick", *peers, "--json", files["json"], "--svg", files["svg"]],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = json.loads(files["json"].read_text(encoding="utf-8"))
    held = {bar["what"]: bar["is_held"] for bar in found["bars"] if bar["bar"] is not None}
    assert done.returncode == (0 if all(held.values()) else 1), done.stderr
    bars = {bar["what"]: bar["bar"] for bar in found["bars"] if bar["bar"] is not None}
    assert bars == BARS | (PEER_BARS if PEERS else {})
    table = [[cell.strip() for cell in line.split("│")] for line in done.stdout.splitlines() if line.startswith("│")]
    shown = {row[1]: row[-2] for row in table}
    assert {what: shown[what] for what in held} == {what: "yes" if is_held else "NO" for what, is_held in held.items()}
    calls = {name: each["calls"] for name, each in found["drives"]["figures"].items()}
    assert {name: calls[name] for name in DRIVES} == DRIVES
    # The claim with its history, a commit for each node and one more; a machine that stalls adds stamps.
    (ceiling,) = found["drives"]["ceilings"].values()
    assert ceiling["most"] == 6
    assert 1 + (3 + 1) <= ceiling["commits"] < 9
    assert found["scale"]["ended"] == 60
    assert list(found["scale"]["claims"]) == ["none_ended", "many_ended"]
    assert (found["soak"]["runs"], len(found["soak"]["resident"])) == (20, 10)
    assert 0 <= found["soak"]["hot"] <= 1
    assert found["machine"]["kernel"] == f"{platform.system()} {platform.release()}"
    assert found["server"]["fsync"] == "on"
    assert ET.parse(files["svg"]).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - it is ours


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("figure", "bar", "is_least", "is_held"),
    [
        (1.5, 1.5, True, True),
        (1.49, 1.5, True, False),
        (6.0, 6.0, False, True),
        (6.01, 6.0, False, False),
        (9, None, False, True),
    ],
)
def test_a_figure_is_held_against_its_bar(*, figure: float, bar: float | None, is_least: bool, is_held: bool) -> None:
    from benchmarks.bars import Bar  # noqa: PLC0415 - see the fixture

    assert Bar(what="it", figure=figure, unit="", bar=bar, is_least=is_least).is_held is is_held


@pytest.mark.usefixtures("modules")
def test_each_ratio_has_its_bar_whether_peers_are_installed_or_not() -> None:
    from benchmarks import names  # noqa: PLC0415 - see the fixture
    from benchmarks.ratios import ratios  # noqa: PLC0415 - likewise

    found = ratios({name: [1.0] for name in names.ORDER})
    of_workers = {"claims, sixteen in a statement / a statement each": 3.0, "tenants by weights / in turn": 0.9}
    expected = {name: bar for name, bar in BARS.items() if name in found} | PEER_BARS | of_workers
    assert {name: ratio.bar for name, ratio in found.items() if ratio.bar is not None} == expected
    assert sorted(expected) == [
        "claims, sixteen in a statement / a statement each",
        "load / dbos status",
        "retry / dbos enqueue again and status",
        "run of 16 parallel nodes / langgraph",
        "run of 3 nodes, from ready / dbos",
        "run of 3 nodes, from ready / dbos queue",
        "run of 3 nodes, from ready / floor",
        "run of 3 nodes, from ready / langgraph sync",
        "run of 3 nodes, from ready, 4 x callers",
        "run of 3 nodes, until durable / dbos",
        "run of 3 nodes, until durable / langgraph sync",
        "submit / dbos enqueue",
        "submit / floor",
        "submit / procrastinate defer",
        "submit_many / submit, alone",
        "superstep, long history / short history",
        "tenants by weights / in turn",
    ]


@pytest.mark.usefixtures("modules")
def test_the_options_of_a_drive_say_how_much_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import __main__ as command  # noqa: PLC0415 - see the fixture
    from benchmarks.drive_cases import DriveSizes  # noqa: PLC0415 - likewise
    from benchmarks.report import Results  # noqa: PLC0415 - likewise

    async def measure(_base: object, sizes: DriveSizes, *, with_peers: bool) -> Results:
        assert with_peers is False
        assert sizes == DriveSizes(rounds=1, runs=8, alone=4, callers=2, supersteps=20)
        return Results(figures={}, rates={}, counts={}, server={}, sizes=sizes)

    monkeypatch.setattr(command, "server", lambda _major: nullcontext(SimpleNamespace(url=None)))
    monkeypatch.setattr(command, "_drives", measure)
    sizes = ["--rounds", "1", "--runs", "8", "--alone", "4", "--callers", "2", "--supersteps", "20"]
    assert CliRunner().invoke(command.main, ["drive", *sizes], catch_exceptions=False).exit_code == 0


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(("p99", "exit_code"), [(0.015, 0), (0.0151, 1)])
def test_claims_that_take_too_long_beside_ended_runs_fail_the_command(
    monkeypatch: pytest.MonkeyPatch, p99: float, exit_code: int
) -> None:
    from benchmarks import __main__ as command  # noqa: PLC0415 - see the fixture
    from benchmarks.scale import MANY, NONE, Claims, Scale, Sizes  # noqa: PLC0415 - likewise
    from benchmarks.soak import Disk, Soak  # noqa: PLC0415 - likewise

    disk = Disk(tables=9_000.0, indexes=3_000.0)

    async def measure(_base: object, sizes: Sizes, soaked: int) -> tuple[Scale, Soak]:
        assert sizes == Sizes(ended=30, originals=30, rounds=1, claims=10, submits=20)
        claims = {NONE: Claims(median=0.01, p99=0.01), MANY: Claims(median=0.01, p99=p99)}
        scale = Scale(ended=sizes.ended, disk=disk, claims=claims, submits={NONE: 1.0, MANY: 1.0})
        return scale, Soak(runs=soaked, rate=1.0, disk=disk, updates=6.0, hot=0.5, resident=[1.0, 1.0])

    monkeypatch.setattr(command, "server", lambda _major: nullcontext(SimpleNamespace(url=None)))
    monkeypatch.setattr(command, "_scale", measure)
    sizes = ["--runs", "30", "--claims", "10", "--submits", "20", "--rounds", "1", "--soak", "20"]
    done = CliRunner().invoke(command.main, ["scale", *sizes], catch_exceptions=False)
    assert done.exit_code == exit_code
    assert "soak of 20 runs" in done.output
    assert "disk of one run: 12,000 bytes, 9,000 in tables and 3,000 in indexes" in done.output


@pytest.mark.usefixtures("modules")
def test_the_plot_draws_each_rate_as_a_share_of_the_highest_of_its_group() -> None:
    from benchmarks import plot  # noqa: PLC0415 - likewise
    from benchmarks.measure import Figure  # noqa: PLC0415 - likewise

    rates = {"submit": 200, "dbos: enqueue, threads": 100, "dbos: enqueue, async": 50, "load": 10}
    figures = {
        name: Figure(calls=rate, seconds=1.0, processor_seconds=1.0, median=0.0, p95=0.0)
        for name, rate in rates.items()
    }
    drawn = ET.fromstring(plot.svg(figures, title="16 callers & one process"))  # noqa: S314 - it is ours
    bars = [each for each in drawn if each.tag.endswith("rect") and each.get("x")]
    assert [(each.get("width"), each.get("fill")) for each in bars] == [
        ("440.0", "#2f6db5"),
        ("220.0", "#d98c3f"),
        ("440.0", "#2f6db5"),
    ]
    words = [each.text for each in drawn if each.tag.endswith("text")]
    assert words[0] == "16 callers & one process"
    assert words[2:6] == ["submit", "200", "dbos: enqueue, threads", "100"]
