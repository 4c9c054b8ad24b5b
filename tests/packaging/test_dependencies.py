"""The oldest dependencies that are tested are the oldest that are allowed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_BOUND = re.compile(r"(?P<name>[A-Za-z0-9-]+)(\[[a-z-]+\])?>=(?P<version>[0-9.]+)(,<[0-9.]+)?")


def test_lowest_txt_pins_every_dependency_at_its_lower_bound(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    bounds = [_BOUND.fullmatch(each) for each in declared]
    assert [each for each, bound in zip(declared, bounds, strict=True) if bound is None] == []
    lowest = sorted(f"{bound['name']}=={bound['version']}" for bound in bounds if bound is not None)
    lines = (checkout / "lowest.txt").read_text().splitlines()
    assert sorted(line for line in lines if not line.startswith(("#", "opentelemetry-sdk=="))) == lowest
    # What the tests export with has the version of the interface that it implements.
    assert [line.partition("==")[2] for line in lines if line.startswith("opentelemetry-")] == ["1.30", "1.30"]
