"""What the documents say of the code is so: commands, tables, errors, examples and links."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from agentruns import errors
from agentruns.cli import COMMANDS, main
from agentruns.domain.explanation.explanation import ReasonCode, RunVerdict
from agentruns.errors import AgentRunsError
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.telemetry import spans
from agentruns.runtime.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS
from agentruns.store.released import released_catalogue

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q"
DEMO = f"{INSTALL} '.[embedded]' && .venv/bin/agentruns demo"
SUITE = f"{INSTALL} tox && .venv/bin/tox"
FIRST_SCREEN = 25


@pytest.fixture
def text(checkout: Path) -> dict[str, str]:
    """All documents, by their place in the checkout."""
    paths = [*checkout.glob("*.md"), *checkout.glob("docs/**/*.md"), *checkout.glob("benchmarks/*.md")]
    return {path.relative_to(checkout).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def _rows(text: str) -> list[str]:
    return [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]


def _words(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def test_the_first_screen_of_the_readme_holds_both_commands(text: dict[str, str]) -> None:
    lines = text["README.md"].splitlines()[:FIRST_SCREEN]
    assert lines[0] == "# agentruns"
    assert DEMO in lines
    assert SUITE in lines


def test_ci_runs_the_command_of_the_readme(checkout: Path) -> None:
    script = (checkout / ".ci" / "run").read_text(encoding="utf-8")
    assert [line for line in script.splitlines() if ".venv" in line] == SUITE.split(" && ")


def test_the_first_example_of_the_readme_is_the_file(checkout: Path, text: dict[str, str]) -> None:
    assert _blocks(text["README.md"], "python")[0] == (checkout / "examples" / "quickstart.py").read_text("utf-8")


def test_the_graph_of_the_tutorial_can_be_built(text: dict[str, str]) -> None:
    names: dict[str, object] = {"__name__": "review"}
    exec(_blocks(text["docs/tutorial.md"], "python")[0], names)  # noqa: S102 - our own document
    deployment = names["deployment"]
    assert isinstance(deployment, Deployment)
    (graph,) = deployment.build().definitions
    assert [node.node_id.text for node in graph.nodes] == ["answer", "mood", "read", "topic"]


def test_every_link_inside_the_documents_leads_somewhere(checkout: Path, text: dict[str, str]) -> None:
    dead = [
        (place, target)
        for place, content in text.items()
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", content)
        if not target.startswith("https://") and not (checkout / place).parent.joinpath(target).exists()
    ]
    assert dead == []


def test_every_document_is_linked_from_the_readme(text: dict[str, str]) -> None:
    assert [place for place in text if place != "README.md" and f"]({place})" not in text["README.md"]] == []


def test_the_reference_names_every_command_and_its_options(text: dict[str, str]) -> None:
    rows = {row.strip(" `").split()[0]: row for row in _rows(text["docs/reference/cli.md"])}
    assert set(rows) == set(COMMANDS)
    for name, row in rows.items():
        group = main.get_command(click.Context(main), name)
        assert group is not None
        commands = list(group.commands.items()) if isinstance(group, click.Group) else [("", group)]
        for called, command in commands:
            assert called in row
            shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
            assert [option.opts[0] for option in shown if option.opts[0] not in row] == []


def test_the_reference_names_every_table_and_view(text: dict[str, str]) -> None:
    catalogue = released_catalogue("agentruns")
    words = _words(text["docs/reference/schema.md"])
    assert [name for name in catalogue["relation"] if name not in words] == []


def test_the_reference_names_the_errors_that_exist(text: dict[str, str]) -> None:
    words = _words(text["docs/reference/errors.md"])
    named = {word for word in words if word.endswith("Error") and word.isidentifier()}
    ours = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert named - ours == {"ValueError", "LookupError"}
    assert {family.__name__ for family in AgentRunsError.__subclasses__()} - named == set()


def test_the_explanations_that_exist_are_told_in_the_order_of_causes(text: dict[str, str]) -> None:
    told = [word for row in _rows(text["docs/how-to/explain.md"]) for word in re.findall(r"`(\w+)`", row)]
    assert told == [each.value for each in (*RunVerdict, *ReasonCode)]


def test_the_guide_names_every_span_and_instrument(text: dict[str, str]) -> None:
    kinds: list[type[spans.ObservedSpan | spans.LateSpan]] = [
        *spans.ObservedSpan.__subclasses__(),
        *spans.LateSpan.__subclasses__(),
    ]
    rows = [row.strip(" `") for row in _rows(text["docs/how-to/observability.md"])]
    assert len(rows) == len(set(rows))
    assert set(rows) == COUNTERS.keys() | HISTOGRAMS.keys() | GAUGES.keys() | {kind.name for kind in kinds}


def test_the_changelog_has_the_version(checkout: Path, text: dict[str, str]) -> None:
    project = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)
    assert re.search(rf"^## {re.escape(version)}\b", text["CHANGELOG.md"], re.MULTILINE)
