"""What a set of documents must satisfy before it becomes a registry: closed, finite, asserted and compilable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from attrs import field, frozen

from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema.cycles import on_cycles
from agentruns.domain.schema.dialect import FORMAT_CHECKER, prepare_format
from agentruns.domain.schema.documents import SchemaDocument, closed_resources
from agentruns.domain.schema.keywords import FORMATS, REFERENCES, UNEVALUATED, escaped
from agentruns.domain.schema.subschemas import Subschema, SubschemaIndex, walk

MAXIMUM_FINDINGS = 100
#: Sets of documents whose findings are kept.
_KEPT = 64


@frozen(kw_only=True)
class SchemaFinding:
    """Say what is wrong where: one line of a refused build."""

    reason: str
    reference: SchemaReference | None
    place: str

    def __str__(self) -> str:
        return f"{self.reason} at {self.place}"


@frozen
class _Documents:
    """Hold documents together; what they pin says whether two sets of them are the same."""

    references: tuple[SchemaReference, ...]
    documents: Sequence[SchemaDocument] = field(eq=False)


def findings(documents: Sequence[SchemaDocument]) -> tuple[SchemaFinding, ...]:
    """Give what the first failing check finds, at most a hundred findings; nothing when the documents can be used.

    The checks come in a fixed order, and each needs what the earlier ones have established: embedded resources would
    move the base of references, and cycles are looked for over references that are known to resolve.
    """
    return _found(_Documents(tuple(document.reference for document in documents), documents))


@lru_cache(maxsize=_KEPT)
def _found(pinned: _Documents) -> tuple[SchemaFinding, ...]:
    """Check a set of documents once: a process builds registries of the same ones again."""
    documents = pinned.documents
    if found := tuple(_embedded(documents)):
        return found[:MAXIMUM_FINDINGS]
    index = SubschemaIndex.over(documents, closed_resources(documents))
    own = [subschema for subschema in index.subschemas if subschema.reference is not None]
    checks: tuple[Callable[[], Iterator[SchemaFinding]], ...] = (
        lambda: _unresolved(own, index),
        lambda: _cyclic(index),
        lambda: _recursive_unevaluated(index),
        lambda: _unknown_formats(own),
        lambda: _unchecked_formats(own),
        lambda: _patterns(own),
    )
    return next((found[:MAXIMUM_FINDINGS] for check in checks if (found := tuple(check()))), ())


def _at(subschema: Subschema, reason: str, suffix: str = "") -> SchemaFinding:
    place = f"{subschema.base}#{subschema.pointer}{suffix}"
    return SchemaFinding(reason=reason, reference=subschema.reference, place=place)


def _embedded(documents: Sequence[SchemaDocument]) -> Iterator[SchemaFinding]:
    for document in documents:
        for subschema in walk(document):
            names = ("$vocabulary",) if not subschema.pointer else ("$id", "$schema", "$vocabulary")
            for name in names:
                if name in subschema.schema:
                    yield _at(subschema, "embedded_resource", f"/{name}")


def _unresolved(own: Sequence[Subschema], index: SubschemaIndex) -> Iterator[SchemaFinding]:
    for subschema in own:
        for keyword in REFERENCES:
            reference = subschema.schema.get(keyword)
            if isinstance(reference, str) and index.targets(subschema, reference) is None:
                yield _at(subschema, "unresolved_reference", f"/{keyword}")


def _cyclic(index: SubschemaIndex) -> Iterator[SchemaFinding]:
    for subschema in _on_cycles(index, consuming=False):
        yield _at(subschema, "cyclic_reference")


def _recursive_unevaluated(index: SubschemaIndex) -> Iterator[SchemaFinding]:
    for subschema in _on_cycles(index, consuming=True):
        for keyword in UNEVALUATED:
            if keyword in subschema.schema:
                yield _at(subschema, "recursive_unevaluated", f"/{keyword}")


def _on_cycles(index: SubschemaIndex, *, consuming: bool) -> list[Subschema]:
    """Give the registered subschemas that can reach themselves; the meta-schemas are nobody's fault."""
    number = {id(subschema): position for position, subschema in enumerate(index.subschemas)}
    successors = [
        [number[id(successor)] for successor in (*found.successors(consuming=consuming), *index.referred(found))]
        for found in index.subschemas
    ]
    found = on_cycles(successors)
    return [each for position, each in enumerate(index.subschemas) if position in found and each.reference is not None]


def _formats(own: Sequence[Subschema]) -> Iterator[tuple[Subschema, str]]:
    return ((found, name) for found in own if isinstance(name := found.schema.get("format"), str))


def _unknown_formats(own: Sequence[Subschema]) -> Iterator[SchemaFinding]:
    for subschema, name in _formats(own):
        if name not in FORMATS:
            yield _at(subschema, "unknown_format", "/format")


def _unchecked_formats(own: Sequence[Subschema]) -> Iterator[SchemaFinding]:
    for subschema, name in _formats(own):
        if name not in FORMAT_CHECKER.checkers:
            yield _at(subschema, "missing_format_checker", "/format")
        else:
            prepare_format(name)


def _patterns(own: Sequence[Subschema]) -> Iterator[SchemaFinding]:
    for subschema in own:
        for suffix, pattern in _patterns_of(subschema.schema):
            if not _compiles(pattern):
                yield _at(subschema, "invalid_pattern", suffix)


def _patterns_of(schema: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield "/pattern", pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        yield from ((f"/patternProperties/{escaped(name)}", name) for name in named)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
