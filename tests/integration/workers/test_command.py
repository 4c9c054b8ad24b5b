"""``agentruns worker`` for programs, on a terminal, and under an orchestrator's probes, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentruns import AgentSubmissionKey, HealthEndpoint, RunId, WorkerHealth, WorkerStatus
from agentruns.testing.faults import WireProxy

Run = Callable[[Coroutine[Any, Any, None]], None]

APP = """
from pathlib import Path
import asyncio
from agentruns import Deployment, Finish, GraphBuilder

deployment = Deployment(issuer="https://shop.example/", subject="back-office")
slow = deployment.add(GraphBuilder("slow", "1.0.0", input={}, state={}, output={}))

@slow.node(entry=True, terminal=True)
async def nap(context):
    print("entered", flush=True)
    while not Path("go_on").exists():
        await asyncio.sleep(0.05)
    return Finish(None)
"""
PATIENCE = 60.0
NOWHERE = "postgresql://127.0.0.1:1/none"
_RUN = {"tenant_id", "run_id", "epoch"}
SHAPES = {
    "worker_started": {"tenants", "graphs", "slots"},
    "run_claimed": _RUN,
    "drive_ended": {*_RUN, "outcome", "error", "reason", "seconds"},
    "runs_supervised": {"tenant_id", "cancellations_requested", "runs_failed", "timers_fired", "errors"},
    "health_changed": {"health", "reason"},
    "worker_draining": {"running"},
    "worker_stopped": {"error"},
    "events_lost": {"count"},
}


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    (tmp_path / "shop_agents.py").write_text(APP)
    return tmp_path


async def submitted(app_dir: Path, url: str) -> RunId:
    """Submit one run as the application does."""
    spec = spec_from_file_location("shop_agents_here", app_dir / "shop_agents.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    async with module.deployment.open(url, tenant="acme") as app:
        admitted = await app.runs.submit(AgentSubmissionKey.generate(), app.request(module.slow, input=None, state={}))
        run_id: RunId = admitted.snapshot.provenance.run_id
        return run_id


@asynccontextmanager
async def started(app_dir: Path, url: str, *arguments: str, stderr: int = PIPE, **more: str) -> AsyncIterator[Process]:
    """Start a worker; one that is left is killed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUNS_")}
    paths = os.pathsep.join(filter(None, (str(Path.cwd()), kept.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from agentruns.cli import main; main()", "worker", "--app", "shop_agents:deployment", *arguments),
        cwd=app_dir,
        env={**kept, "PYTHONPATH": paths, "AGENTRUNS_DATABASE_URL": url, **more},
        stdout=PIPE,
        stderr=stderr,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lines_until(source: asyncio.StreamReader | None, wanted: str) -> list[str]:
    """Read lines up to one that holds a text."""
    assert source is not None
    lines: list[str] = []
    while not lines or wanted not in lines[-1]:
        line = await source.readline()
        assert line, f"no {wanted} after {lines}"
        lines.append(line.decode().rstrip("\n"))
    return lines


async def endpoint_of(worker: Process) -> str:
    """Read where it answers probes."""
    (*_, line) = await lines_until(worker.stderr, "Health: ")
    (found,) = re.findall(r"^Health: (http://127\.0\.0\.1:[0-9]+)/live and /ready$", line)
    return str(found)


async def probed(base: str) -> tuple[int, int, str]:
    """Give what ``/live`` and ``/ready`` answer, and the status that both tell."""
    async with httpx.AsyncClient(base_url=base, timeout=PATIENCE) as client:
        live, ready = await client.get("/live"), await client.get("/ready")
    assert live.json().keys() == ready.json().keys() == {"status"}
    return live.status_code, ready.status_code, ready.json()["status"]


async def until(base: str, answer: tuple[int, int, str]) -> None:
    while await probed(base) != answer:
        await asyncio.sleep(0.1)


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    """Read events; each has its own shape, and instants do not run backwards."""
    events = [json.loads(line) for line in lines]
    for event in events:
        assert event.keys() == {"event", "at", *SHAPES[event["event"]]}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["at"])
    instants = [event.pop("at") for event in events]
    assert instants == sorted(instants)
    return events


def test_events_and_probes_tell_of_an_outage_and_of_a_drain(app_dir: Path, database_url: str, run: Run) -> None:
    async def work() -> None:
        run_id = await submitted(app_dir, database_url)
        arguments = ("--format", "json", "--health", "0", "--slots", "2")
        async with WireProxy.before(database_url) as proxy, started(app_dir, proxy.url, *arguments) as worker:
            base = await endpoint_of(worker)
            lines = await lines_until(worker.stdout, "run_claimed")
            # What nodes print is no event. The start of this one is committed.
            assert "entered" in await lines_until(worker.stderr, "entered")
            await until(base, (200, 200, "ready"))
            proxy.take_down()
            lines += await lines_until(worker.stdout, '"unavailable"')
            assert await probed(base) == (200, 503, "unavailable")
            proxy.bring_up()
            lines += await lines_until(worker.stdout, '"ready"')
            await until(base, (200, 200, "ready"))
            worker.send_signal(signal.SIGTERM)
            lines += await lines_until(worker.stdout, "worker_draining")
            assert await probed(base) == (200, 503, "draining")
            (app_dir / "go_on").touch()
            out, err = await worker.communicate()
            assert worker.returncode == 0
            with pytest.raises(httpx.ConnectError):
                await probed(base)
            check(parsed([*lines, *out.decode().splitlines()]), run_id)
            assert err.decode().splitlines()[-1] == "All leases are given back"

    def check(events: list[dict[str, Any]], run_id: RunId) -> None:
        ids = {"tenant_id": "acme", "run_id": run_id.text}
        assert events[0] == {"event": "worker_started", "tenants": None, "graphs": 1, "slots": 2}
        assert {"event": "run_claimed", **ids, "epoch": 1} in events
        health = [(event["health"], event["reason"]) for event in events if event["event"] == "health_changed"]
        assert ("unavailable", "store_unavailable") in health
        assert ("ready", None) in health
        ends = [event for event in events if event["event"] == "drive_ended"]
        assert ends[-1].keys() == {"event", *SHAPES["drive_ended"]}
        assert [event["event"] for event in events[-3:]] == ["worker_draining", "drive_ended", "worker_stopped"]
        assert (ends[-1]["run_id"], ends[-1]["outcome"], ends[-1]["error"]) == (run_id.text, "succeeded", None)
        assert events[-1] == {"event": "worker_stopped", "error": None}

    run(work())


def test_a_reader_that_goes_away_ends_the_worker(app_dir: Path, database_url: str, run: Run) -> None:
    async def work() -> None:
        (app_dir / "go_on").touch()
        await submitted(app_dir, database_url)
        async with started(app_dir, database_url, "--format", "json", "--quiet") as worker:
            (first,) = await lines_until(worker.stdout, "worker_started")
            assert parsed([first])[0]["tenants"] is None
            # As ``head -1`` leaves.
            transport: Any = worker._transport  # type: ignore[attr-defined]  # there is no other way to its pipe
            transport.get_pipe_transport(1).close()
            for _ in range(3):
                await submitted(app_dir, database_url)
            assert await worker.wait() == 0
            assert worker.stderr is not None
            assert (await worker.stderr.read()).replace(b"entered\n", b"") == b""

    run(work())


def test_a_terminal_shows_a_table_of_what_runs(app_dir: Path, database_url: str, run: Run) -> None:
    async def work() -> None:
        run_id = await submitted(app_dir, database_url)
        terminal, theirs = pty.openpty()
        variables = {"COLUMNS": "140", "LINES": "30", "TERM": "xterm"}
        async with started(app_dir, database_url, stderr=theirs, **variables) as worker:
            os.close(theirs)
            assert worker.stdout is not None
            screen = Screen(terminal)
            await screen.until("nap")
            shown = re.findall(r"acme +(\S+) +(slow 1\.0\.0) +(nap) +(\d:\d\d:\d\d) +(\d+)", screen.text)
            assert {(run, graph, nodes, epoch) for run, graph, nodes, _, epoch in shown} == {
                (run_id.text, "slow 1.0.0", "nap", "1")
            }
            await screen.until("ready: claimed 1, succeeded 0, failed 0, cancelled 0, waiting 0, given back 0")
            # A node's output is not the table's affair as long as somebody else reads it.
            assert await worker.stdout.readline() == b"entered\n"
            worker.send_signal(signal.SIGTERM)
            await screen.until("draining: claimed 1")
            (app_dir / "go_on").touch()
            await screen.until("All leases are given back")
            assert await worker.wait() == 0
            assert "stopped: claimed 1, succeeded 1, failed 0, cancelled 0, waiting 0, given back 0" in screen.text
            assert "SIGTERM: nothing further is started; a second signal stops what runs" in screen.text
            # The cursor is shown again.
            assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l")
        os.close(terminal)

    run(work())


class Screen:
    """Collect what a process writes to a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.raw = ""

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw)

    async def until(self, wanted: str) -> None:
        while wanted not in self.text:
            self.raw += (await asyncio.to_thread(os.read, self._terminal, 65_536)).decode()


def test_a_port_in_use_is_refused_before_anything_else(app_dir: Path, run: Run) -> None:
    async def work() -> None:
        ready = WorkerHealth(status=WorkerStatus.READY)
        async with HealthEndpoint(lambda: ready, port=0) as theirs:
            address = theirs.address
            async with started(app_dir, NOWHERE, "--tenant", "acme", "--health", address) as worker:
                out, err = await worker.communicate()
        assert (worker.returncode, out, err.count(b"\n")) == (2, b"", 1)
        assert f"value={address} (EADDRINUSE), bound=an address of this machine, and a port" in err.decode()

    run(work())
