"""The package list of ``setup.cfg`` is written by hand, because two packages live outside of ``agentruns/``."""

from __future__ import annotations

from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path

import pytest


@pytest.fixture
def options(checkout: Path) -> ConfigParser:
    parser = ConfigParser()
    parser.read(checkout / "setup.cfg")
    return parser


@pytest.fixture
def mapped(options: ConfigParser) -> dict[str, str]:
    pairs = (line.split("=") for line in options["options"]["package_dir"].split("\n") if line)
    return {name.strip(): folder.strip() for name, folder in pairs}


def _packages_below(checkout: Path) -> set[str]:
    return {".".join(init.parent.relative_to(checkout).parts) for init in checkout.glob("agentruns/**/__init__.py")}


def test_setup_cfg_lists_exactly_the_folders(checkout: Path, options: ConfigParser, mapped: dict[str, str]) -> None:
    listed = options["options"]["packages"].split()
    assert listed == sorted(listed)
    assert set(listed) == _packages_below(checkout) | set(mapped)


def test_every_folder_with_modules_is_a_package(checkout: Path) -> None:
    folders = {module.parent for module in checkout.glob("agentruns/**/*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_two_mapped_packages_are_where_the_mapping_says(checkout: Path, mapped: dict[str, str]) -> None:
    assert mapped == {"agentruns.migrations.versions": "alembic/versions", "agentruns.schemas": "schemas"}
    assert [(checkout / folder / "__init__.py").read_bytes() for folder in mapped.values()] == [b"", b""]


def test_every_file_beside_the_modules_is_package_data(
    checkout: Path, options: ConfigParser, mapped: dict[str, str]
) -> None:
    folders = {name: checkout / name.replace(".", "/") for name in _packages_below(checkout)}
    folders |= {name: checkout / folder for name, folder in mapped.items()}
    declared = {name: patterns.split() for name, patterns in options["options.package_data"].items()}
    lost = [
        path.relative_to(checkout)
        for name, folder in folders.items()
        for path in folder.iterdir()
        if path.is_file() and path.suffix not in (".py", ".pyc")
        if not any(fnmatch(path.name, pattern) for pattern in declared.get(name, ()))
    ]
    assert lost == []


def test_the_folder_alembic_does_not_shadow_the_library(checkout: Path) -> None:
    assert not (checkout / "alembic" / "__init__.py").exists()
    assert (checkout / "alembic" / "env.py").is_file()


def test_no_file_stands_where_the_readme_makes_an_environment(checkout: Path) -> None:
    assert not (checkout / ".venv").is_file()
