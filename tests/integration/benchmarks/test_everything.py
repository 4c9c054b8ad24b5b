"""Everything that has a bar is measured in one run; what is measured is not judged here."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

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

on_its_server = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("AGENTRUNS_TEST_MAJOR", "18") != "18", reason="its server is of version 18"),
]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is no installed package."""
    monkeypatch.syspath_prepend(CHECKOUT)


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


class TestCommands:
    pytestmark = on_its_server

    def test_all_bars_stand_in_one_table_a_file_and_a_plot(self, tmp_path: Path) -> None:
        json_file, svg_file = tmp_path / "figures.json", tmp_path / "figures.svg"
        peers = ["--peers"] if PEERS else []
        done = _run("all", "--quick", *peers, "--json", json_file, "--svg", svg_file)
        text = json_file.read_text(encoding="utf-8")
        found = json.loads(text)
        held = {bar["what"]: bar["is_held"] for bar in found["bars"] if bar["bar"] is not None}
        assert done.returncode == (0 if all(held.values()) else 1), done.stderr
        bars = {bar["what"]: bar["bar"] for bar in found["bars"] if bar["bar"] is not None}
        assert bars == BARS | (PEER_BARS if PEERS else {})
        for what, is_held in held.items():
            *_, line = (line for line in done.stdout.splitlines() if line.startswith(f"│ {what} "))
            assert line.rstrip(" │").endswith("yes" if is_held else "NO")
        assert found["versions"]["agentruns"] is not None
        assert found["machine"]["kernel"] == f"{platform.system()} {platform.release()}"
        assert found["server"]["fsync"] == "on"
        assert ET.parse(svg_file).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - it is ours

    def test_scale_is_measured_beside_runs_that_are_copies(self, tmp_path: Path) -> None:
        json_file = tmp_path / "figures.json"
        sizes = ("--runs", "30", "--claims", "10", "--submits", "20", "--rounds", "1", "--soak", "20")
        done = _run("scale", *sizes, "--json", json_file)
        found = json.loads(json_file.read_text(encoding="utf-8"))
        assert done.returncode == (0 if found["scale"]["claim_ratio"] <= 1.5 else 1), done.stderr
        assert found["scale"]["ended"] == 30
        assert list(found["scale"]["claims"]) == ["none_ended", "many_ended"]
        assert (found["soak"]["runs"], len(found["soak"]["resident"])) == (20, 10)
        assert 0 <= found["soak"]["hot"] <= 1


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
