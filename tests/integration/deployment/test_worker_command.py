"""``agentruns worker`` as a process: what it drives, how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from agentruns import AgentSubmissionKey, RunStatus
from agentruns.operations.embedded import EmbeddedServer

Run = Callable[[Coroutine[Any, Any, Any]], Any]

APP = """
import asyncio
import os
from agentruns import Deployment, Finish, GraphBuilder

deployment = Deployment(issuer="https://shop.example/", subject="back-office")
slow = deployment.add(GraphBuilder("slow", "1.0.0", input={}, state={}, output={}))
other = "no deployment"

@slow.node(entry=True, terminal=True)
async def nap(context):
    print("entered", flush=True)
    await asyncio.sleep(float(os.environ.get("NAP_SECONDS", context.state["seconds"])))
    return Finish(None)
"""


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    """Where the application is, with a module that works and one that does not."""
    (tmp_path / "shop_agents.py").write_text(APP)
    (tmp_path / "broken_agents.py").write_text("raise RuntimeError('planted-secret')")
    return tmp_path


def started(app_dir: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUNS_")}
    command = [sys.executable, "-c", "from agentruns.cli import main; main()", "worker", *arguments]
    paths = os.pathsep.join(filter(None, (str(Path.cwd()), environment.get("PYTHONPATH"))))
    return subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=app_dir,
        env={**environment, "PYTHONPATH": paths, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(worker: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = worker.communicate(timeout=60)
    assert "Traceback" not in err
    return worker.returncode, out, err


async def submitted(app_dir: Path, url: str, *, seconds: float) -> tuple[Any, AgentSubmissionKey]:
    """Submit one run as the application does, and give its deployment and key."""
    spec = spec_from_file_location("shop_agents_here", app_dir / "shop_agents.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    key = AgentSubmissionKey.generate()
    async with module.deployment.open(url, tenant="acme") as app:
        await app.runs.submit(key, app.request(module.slow, input=None, state={"seconds": seconds}))
    return module.deployment, key


async def left_of(deployment: Any, url: str, key: AgentSubmissionKey) -> tuple[RunStatus, int, int, bool]:
    """Give the run's status, how many attempts and results it has, and whether anybody holds it."""
    async with deployment.open(url, tenant="acme") as app:
        snapshot = await app.runs.load_by_key(app.tenant, key)
        replayed = await app.reader.read(app.tenant, snapshot.provenance.run_id)
        report, lease = replayed.report, replayed.history.run["lease_attempt_id"]
        return snapshot.status, report.attempts_verified, report.results_verified, lease is not None


async def over(deployment: Any, url: str, key: AgentSubmissionKey) -> None:
    """Return once the run has ended."""
    async with deployment.open(url, tenant="acme") as app:
        run_id = (await app.runs.load_by_key(app.tenant, key)).provenance.run_id
        await app.runs.wait(app.tenant, run_id, timeout=timedelta(seconds=60))


def entered(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline() == "entered\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("tenants", [("--tenant", "acme"), ()], ids=["named", "found"])
def test_E3_the_first_signal_lets_a_running_node_finish_and_commits_it(
    app_dir: Path, database_url: str, run: Run, number: signal.Signals, tenants: tuple[str, ...]
) -> None:
    deployment, key = run(submitted(app_dir, database_url, seconds=1.5))
    arguments = ("--app", "shop_agents:deployment", *tenants, "--slots", "2")
    worker = started(app_dir, *arguments, AGENTRUNS_DATABASE_URL=database_url)
    entered(worker)
    worker.send_signal(number)
    code, out, err = ended(worker)
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        f"Working for {'acme' if tenants else 'every tenant'}; slots: 2, graphs: 1",
        f"{number.name}: nothing further is started; a second signal stops what runs",
        "All leases are given back",
    ]
    assert run(left_of(deployment, database_url, key)) == (RunStatus.SUCCEEDED, 1, 1, False)


def test_E1_the_second_signal_gives_the_run_back_at_once(app_dir: Path, database_url: str, run: Run) -> None:
    deployment, key = run(submitted(app_dir, database_url, seconds=300))
    arguments = ("--app", "shop_agents:deployment", "--format", "json", "--quiet", "--drain", "300")
    worker = started(app_dir, *arguments, AGENTRUNS_DATABASE_URL=database_url)
    assert worker.stdout is not None
    assert worker.stderr is not None
    assert worker.stderr.readline() == "entered\n"
    worker.send_signal(signal.SIGTERM)
    # Of two that come before it has seen the first one a process sees one.
    while json.loads(worker.stdout.readline())["event"] != "worker_draining":
        pass
    worker.send_signal(signal.SIGTERM)
    code, out, err = ended(worker)
    assert (code, err) == (8, "")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["drive_ended", "worker_stopped"]
    assert run(left_of(deployment, database_url, key)) == (RunStatus.ACTIVE, 1, 0, False)


def test_E1_E2_the_drain_time_ends_a_node_that_goes_on_and_the_next_worker_begins_it_again(
    app_dir: Path, database_url: str, run: Run
) -> None:
    deployment, key = run(submitted(app_dir, database_url, seconds=300))
    arguments = ("--app", "shop_agents:deployment", "--quiet", "--drain", "0.5")
    worker = started(app_dir, *arguments, AGENTRUNS_DATABASE_URL=database_url)
    entered(worker)
    worker.send_signal(signal.SIGTERM)
    assert ended(worker) == (0, "", "")
    assert run(left_of(deployment, database_url, key)) == (RunStatus.ACTIVE, 1, 0, False)
    # The node fails for good with its first failure, and an interruption is none: there is room for another attempt.
    worker = started(app_dir, *arguments, AGENTRUNS_DATABASE_URL=database_url, NAP_SECONDS="0")
    entered(worker)
    run(over(deployment, database_url, key))
    worker.send_signal(signal.SIGTERM)
    assert ended(worker) == (0, "", "")
    assert run(left_of(deployment, database_url, key)) == (RunStatus.SUCCEEDED, 2, 1, False)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("shop_agents", "'shop_agents' is not MODULE:NAME, such as shop.agents:deployment"),
        ("nowhere:deployment", "module 'nowhere' cannot be imported (ModuleNotFoundError: nowhere)"),
        ("broken_agents:deployment", "module 'broken_agents' cannot be imported (RuntimeError)"),
        ("shop_agents:missing", "module 'shop_agents' has no deployment called 'missing'"),
        ("shop_agents:other", "module 'shop_agents' has no deployment called 'other'"),
    ],
)
def test_an_app_that_is_none(app_dir: Path, named: str, sentence: str) -> None:
    code, out, err = ended(started(app_dir, "--app", named))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == f"Error: Invalid value for '--app': {sentence}"


def test_a_worker_that_nobody_told_of_a_tenant_serves_the_first_one_that_comes(
    app_dir: Path, database_url: str, run: Run
) -> None:
    worker = started(app_dir, "--app", "shop_agents:deployment", AGENTRUNS_DATABASE_URL=database_url)
    assert worker.stderr is not None
    assert worker.stderr.readline() == "Working for every tenant; slots: 4, graphs: 1\n"
    deployment, key = run(submitted(app_dir, database_url, seconds=0))
    entered(worker)
    worker.send_signal(signal.SIGTERM)
    assert ended(worker)[:2] == (0, "")
    assert run(left_of(deployment, database_url, key)) == (RunStatus.SUCCEEDED, 1, 1, False)


def test_a_listen_url_that_no_connection_can_be_made_to(app_dir: Path, database_url: str) -> None:
    variables = {"AGENTRUNS_DATABASE_URL": database_url, "AGENTRUNS_LISTEN_URL": "planted-secret"}
    code, out, err = ended(started(app_dir, "--app", "shop_agents:deployment", "--quiet", **variables))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "option=listen_url" in err
    assert "planted-secret" not in err


def test_an_unmigrated_database(app_dir: Path, empty_database_url: str) -> None:
    arguments = ("--app", "shop_agents:deployment", "--tenant", "acme")
    code, out, err = ended(started(app_dir, *arguments, AGENTRUNS_DATABASE_URL=empty_database_url))
    assert (code, out, err.count("\n")) == (6, "", 1)
    assert err.endswith("run `agentruns db upgrade`\n")


@pytest.fixture
def lossy() -> Iterator[Path]:
    """Data of a server that has run without durability."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    with EmbeddedServer(directory / "data", durable=False):
        yield directory / "data"
    shutil.rmtree(directory)


def test_data_that_may_be_lost_are_refused(app_dir: Path, lossy: Path) -> None:
    arguments = ("--app", "shop_agents:deployment", "--tenant", "acme", "--quiet")
    code, out, err = ended(started(app_dir, *arguments, AGENTRUNS_DATA_DIR=str(lossy)))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"value={lossy}, bound=a directory whose server has always been durable" in err
