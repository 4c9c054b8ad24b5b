"""Collect schema documents, refuse what cannot be used, and freeze the rest into a registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import Version
from agentruns.domain.schema.checks import findings
from agentruns.domain.schema.documents import BUNDLED, SchemaDocument, is_valid_schema
from agentruns.domain.schema.keywords import DIALECT
from agentruns.domain.schema.limits import MEBIBYTE, JsonSchemaRegistryLimits
from agentruns.domain.schema.registry import JsonSchemaRegistry
from agentruns.domain.uris import SchemaId
from agentruns.errors import DefinitionError

#: Room for white space around the largest document, which is bounded by its canonical bytes.
READ_LIMITS = JsonLimits.record(16 * MEBIBYTE)

#: Text or bytes are parsed; anything else is a tree.
Document = Union[bytes, JsonTree]  # noqa: UP007 - the tree is recursive and names itself in text

_Check = tuple[str, Callable[[], bool]]


class JsonSchemaRegistryBuilder:
    """Collect the schemas that a process works with, once, before it works.

    ``add`` takes a document under the id that it states, ``register`` one whose digest is pinned elsewhere, and
    ``build`` freezes them. No file or socket is opened; references lead to registered documents or nowhere.
    """

    def __init__(self, limits: JsonSchemaRegistryLimits | None = None) -> None:
        self._limits = limits or JsonSchemaRegistryLimits()
        self._documents: dict[str, SchemaDocument] = {}
        self._bytes = 0

    def __contains__(self, reference: object) -> bool:
        return (
            isinstance(reference, SchemaReference)
            and (document := self._documents.get(str(reference.id))) is not None
            and document.reference == reference
        )

    def add(self, document: Document, version: str | Version) -> SchemaReference:
        """Register a document under its own ``$id`` and give the reference that pins it.

        Raises:
            InvalidJsonError: the document is not acceptable JSON.
            InvalidValueError: ``$id`` or version is not in normal form.
            DefinitionError: the document is refused, as by :meth:`register`.
        """
        body = _read(document)
        reference = SchemaReference(
            id=_own_id(body.value),
            version=Version.parse(version) if isinstance(version, str) else version,
            digest=body.digest,
        )
        self._register(reference, body)
        return reference

    def register(self, reference: SchemaReference, document: Document) -> None:
        """Register a document that must be exactly the one that ``reference`` pins.

        Raises:
            InvalidJsonError: the document is not acceptable JSON.
            DefinitionError: kind ``schema``, with the first reason that applies.
        """
        self._register(reference, _read(document))

    def build(self) -> JsonSchemaRegistry:
        """Freeze the documents registered so far; the builder may go on and build another registry.

        Raises:
            DefinitionError: kind ``schema``; ``findings`` lists every place where the first failing check fails.
        """
        documents = [self._documents[uri] for uri in sorted(self._documents)]
        if not documents:
            raise DefinitionError(kind="schema", reason="empty")
        if found := findings(documents):
            raise DefinitionError(
                kind="schema",
                reason=found[0].reason,
                reference=found[0].reference,
                findings=tuple(str(finding) for finding in found),
            )
        return JsonSchemaRegistry.over(documents, self._limits)

    def _register(self, reference: SchemaReference, body: BoundedJson) -> None:
        tree = body.value
        for reason, applies in self._checks(reference, body, tree):
            if applies():
                limit, actual = self._measures(body).get(reason, (None, None))
                raise DefinitionError(kind="schema", reason=reason, reference=reference, limit=limit, actual=actual)
        document = SchemaDocument.of(reference, body)
        self._documents[document.id] = document
        self._bytes += document.size

    def _checks(self, reference: SchemaReference, body: BoundedJson, tree: JsonTree) -> tuple[_Check, ...]:
        """List the refusals of a document in their order; each may rely on the ones before it."""
        identifier, limits = str(reference.id), self._limits
        return (
            ("too_many_documents", lambda: len(self._documents) >= limits.documents),
            ("duplicate_reference", lambda: reference in self),
            ("duplicate_id", lambda: identifier in self._documents or identifier in BUNDLED),
            ("not_an_object", lambda: not isinstance(tree, dict)),
            ("wrong_dialect", lambda: _member(tree, "$schema") != DIALECT),
            ("id_mismatch", lambda: _member(tree, "$id") != identifier),
            ("invalid_schema", lambda: not is_valid_schema(body)),
            ("document_too_large", lambda: body.size > limits.document_bytes),
            ("digest_mismatch", lambda: body.digest != reference.digest),
            ("registry_too_large", lambda: self._bytes + body.size > limits.total_bytes),
        )

    def _measures(self, body: BoundedJson) -> dict[str, tuple[int, int]]:
        """Give limit and actual value of the refusals that are about a number."""
        return {
            "too_many_documents": (self._limits.documents, len(self._documents) + 1),
            "document_too_large": (self._limits.document_bytes, body.size),
            "registry_too_large": (self._limits.total_bytes, self._bytes + body.size),
        }


def _read(document: Document) -> BoundedJson:
    if isinstance(document, str | bytes):
        return BoundedJson.parse(document, READ_LIMITS)
    return BoundedJson.of(document, READ_LIMITS)


def _member(tree: JsonTree, name: str) -> JsonTree:
    return tree.get(name) if isinstance(tree, dict) else None


def _own_id(tree: JsonTree) -> SchemaId:
    identifier = _member(tree, "$id")
    if isinstance(identifier, str):
        return SchemaId.parse(identifier)
    raise DefinitionError(kind="schema", reason="id_mismatch" if isinstance(tree, dict) else "not_an_object")
