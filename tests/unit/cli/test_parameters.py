"""A malformed id is refused before anything else happens: what was wanted is said, what was given is not."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from agentruns.cli import main
from agentruns.cli.parameters import ADDRESS

RUN = "01890000-0000-7000-8000-000000000000"
UUID = f"wanted a UUID of version 7 in lower case, such as {RUN}"
TENANT = "wanted 1 to 128 of the characters A-Z a-z 0-9 . _ : -"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("runs", "show", "t", "planted"), f"'RUN': {UUID} (too_short)"),
        (("runs", "show", "t", RUN.replace("-7000-", "-4000-")), f"'RUN': {UUID} (unsupported_version)"),
        (("runs", "show", "t", RUN.replace("189", "18A")), f"'RUN': {UUID} (not_canonical)"),
        (("runs", "show", "pl anted", RUN), f"'TENANT': {TENANT} (invalid_byte)"),
        (("runs", "list", "--tenant", ".."), f"'--tenant': {TENANT} (invalid_format)"),
        (("runs", "list", "--tenant", "t", "--after", "planted"), f"'--after': {UUID} (too_short)"),
    ],
)
def test_what_was_wanted_is_said(arguments: tuple[str, ...], sentence: str) -> None:
    ended = CliRunner(env={"AGENTRUNS_DATABASE_URL": "postgresql://127.0.0.1:1/none"}).invoke(main, arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == f"Error: Invalid value for {sentence}"
    assert "planted" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("0", ("127.0.0.1", 0)),
        ("203.0.113.7:65535", ("203.0.113.7", 65535)),
        ("localhost:80", ("localhost", 80)),
        ("[::]:8080", ("::", 8080)),
    ],
)
def test_an_address_is_a_port_and_a_host_before_it(text: str, address: tuple[str, int]) -> None:
    assert ADDRESS(text) == address


@pytest.mark.parametrize(
    "text", ["", "65536", "-1", "80a", ":8080", "host:", "::1:80", "http://host:80", "a b:80", "٨٠"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        ADDRESS(text)
    assert refused.value.message == "wanted PORT or HOST:PORT, with a port from 0 to 65535"
