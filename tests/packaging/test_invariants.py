"""Every law of the list has a test that carries its label, and no test carries a label that the list does not have."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

#: A label in the name of a test, wherever it stands there.
LABEL = re.compile(r"(?<=_)([A-Z]{2,3}_[0-9]+)(?=_|$)")
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
#: Label, law, and the file of a test that holds it.
ROW = re.compile(r"^\| ([A-Z]{2,3})-([0-9]{2}) \| (.+) \| \[(.+)\]\(\.\./\.\./tests/(.+)\) \|$", re.MULTILINE)
FAMILIES = {"LED": 23, "GRA": 9, "SUB": 27, "LEA": 29, "DRV": 21, "LIF": 20, "SCH": 19, "OPS": 14, "DB": 11}


@pytest.fixture(scope="module")
def laws(checkout: Path) -> list[tuple[str, str, str]]:
    """Label as a test spells it, law, and file, in the order of the list."""
    text = (checkout / "docs" / "reference" / "invariants.md").read_text(encoding="utf-8")
    rows = ROW.findall(text)
    assert len(rows) == sum(line.startswith("| ") for line in text.splitlines()) - text.count("| label |")
    assert [named for _, _, _, named, place in rows if named != place] == []
    return [(f"{family}_{number}", law, place) for family, number, law, _, place in rows]


@pytest.fixture(scope="module")
def carried(checkout: Path) -> dict[str, set[str]]:
    """The files in which a test carries a label, by the label."""
    found = defaultdict(set)
    for path in (checkout / "tests").rglob("test_*.py"):
        for name in TEST.findall(path.read_text(encoding="utf-8")):
            for label in LABEL.findall(name):
                found[label].add(path.relative_to(checkout / "tests").as_posix())
    return found


def test_the_list_has_every_law_of_each_family_once(laws: list[tuple[str, str, str]]) -> None:
    expected = [f"{family}_{number:02d}" for family, last in FAMILIES.items() for number in range(1, last + 1)]
    assert [label for label, _, _ in laws] == expected
    assert len({law for _, law, _ in laws}) == len(laws)


def test_every_law_has_a_test_of_its_name_where_the_list_says(
    laws: list[tuple[str, str, str]], carried: dict[str, set[str]]
) -> None:
    assert [(label, place) for label, _, place in laws if place not in carried.get(label, set())] == []


def test_no_test_carries_a_label_that_the_list_lacks(
    laws: list[tuple[str, str, str]], carried: dict[str, set[str]]
) -> None:
    known = {label for label, _, _ in laws}
    assert {label: sorted(places) for label, places in carried.items() if label not in known} == {}
