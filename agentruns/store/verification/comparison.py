"""Compare the catalogue of a schema with the released one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from agentruns.store.released import Catalogue

_RELATION: Final = "relation"
_RELATIONS: Final = {
    "r": "table",
    "p": "partitioned table",
    "f": "foreign table",
    "v": "view",
    "m": "materialized view",
    "S": "sequence",
}
#: Come with a constraint, which is reported itself where it is one too many.
_IMPLIED: Final = "constraint trigger"


@frozen(kw_only=True)
class Differences:
    """Name what is not as it was released, each as a verdict, a kind and an object.

    Attributes:
        findings: ``missing``, ``different`` and ``unexpected`` objects that the schema must not have that way.
        warnings: ``unexpected`` objects that do no harm.
    """

    findings: tuple[str, ...]
    warnings: tuple[str, ...]


def compare(found: Catalogue, wanted: Catalogue, *, may_hold_more: bool) -> Differences:
    """Hold what was found against what was released; what belongs to a missing or foreign relation goes with it.

    Args:
        found: what was read.
        wanted: what the manifest says, for a schema of that name.
        may_hold_more: a newer release made the schema, and what it added is not compared.
    """
    findings = dict.fromkeys([*_missing(found, wanted), *_different(found, wanted)])
    warnings: list[str] = []
    for kind, name, definition in () if may_hold_more else _unexpected(found, wanted):
        line = f"unexpected {_named(kind, name, definition)}"
        if _is_harmless(kind, name, definition, wanted):
            warnings.append(line)
        else:
            findings[line] = None
    return Differences(findings=tuple(findings), warnings=tuple(warnings))


def _missing(found: Catalogue, wanted: Catalogue) -> Iterator[str]:
    gone = wanted[_RELATION].keys() - found.get(_RELATION, {}).keys()
    for kind, objects in wanted.items():
        for name, definition in objects.items():
            if name not in found.get(kind, {}) and (kind == _RELATION or _relation_of(name) not in gone):
                yield f"missing {_named(kind, name, definition)}"


def _different(found: Catalogue, wanted: Catalogue) -> Iterator[str]:
    for kind, objects in wanted.items():
        for name, definition in objects.items():
            if found.get(kind, {}).get(name, definition) != definition:
                yield f"different {_named(kind, name, definition)}"


def _unexpected(found: Catalogue, wanted: Catalogue) -> Iterator[tuple[str, str, str]]:
    foreign = found.get(_RELATION, {}).keys() - wanted[_RELATION].keys()
    for kind, objects in found.items():
        for name, definition in objects.items():
            is_known = name in wanted.get(kind, {}) or kind == _IMPLIED
            if not is_known and (kind == _RELATION or _relation_of(name) not in foreign):
                yield kind, name, definition


def _is_harmless(kind: str, name: str, definition: str, wanted: Catalogue) -> bool:
    """No statement of ours meets another relation or function; an index that is not unique refuses nothing.

    Nor does the twin of a released one, which REINDEX CONCURRENTLY builds under another name and may leave invalid.
    """
    if kind == "index":
        is_twin = _indexed(definition) in map(_indexed, _indexes_of(_relation_of(name), wanted))
        return is_twin or not definition.startswith("CREATE UNIQUE")
    return kind in (_RELATION, "function")


def _indexes_of(relation: str, wanted: Catalogue) -> Iterator[str]:
    return (definition for name, definition in wanted["index"].items() if _relation_of(name) == relation)


def _indexed(definition: str) -> str:
    """Take the name from an index, and that it is not yet valid or ready."""
    return definition.partition(" ON ")[2].removesuffix(" NOT READY").removesuffix(" INVALID")


def _relation_of(name: str) -> str:
    return name.partition(".")[0]


def _named(kind: str, name: str, definition: str) -> str:
    return f"{_RELATIONS[definition[0]] if kind == _RELATION else kind} {name}"
