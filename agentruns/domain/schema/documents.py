"""One schema document as a registry keeps it, and the closed set of resources that references may lead to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from attrs import field, frozen
from jsonschema_specifications import REGISTRY as SPECIFICATIONS  # type: ignore[import-untyped] # it has no types
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012, Schema

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema.dialect import Draft202012Validator
from agentruns.domain.schema.keywords import DIALECT

Resources = Registry[Schema]

_BUNDLED = "https://json-schema.org/draft/2020-12/"


@frozen(kw_only=True, eq=False)
class SchemaDocument:
    """Hold a registered document in the form in which it is evaluated.

    The tree has its members in canonical order, so that the first rejection does not depend on how the document was
    written, and no ``$schema``: with it a reference into the document would leave the validator that counts hops.

    Attributes:
        reference: the exact triple under which the document was registered.
        tree: the document without ``$schema``.
        size: canonical bytes of the whole document.
    """

    reference: SchemaReference
    tree: dict[str, JsonTree] = field(repr=False)
    size: int

    @property
    def id(self) -> str:
        """The text of the document's ``$id``."""
        return str(self.reference.id)

    @classmethod
    def of(cls, reference: SchemaReference, body: BoundedJson) -> SchemaDocument:
        """Keep ``body``, a JSON object, under ``reference``."""
        tree = body.value
        assert isinstance(tree, dict)  # noqa: S101 - the builder has refused everything else
        return cls(reference=reference, tree=undialected(tree), size=body.size)


def undialected(tree: dict[str, JsonTree]) -> dict[str, JsonTree]:
    """Leave ``$schema`` out of a document's root."""
    return {name: value for name, value in tree.items() if name != "$schema"}


#: The meta-schemas of the draft, which every document may refer to.
BUNDLED: dict[str, dict[str, JsonTree]] = {
    uri: undialected(SPECIFICATIONS.contents(uri)) for uri in sorted(SPECIFICATIONS) if uri.startswith(_BUNDLED)
}


def closed_resources(documents: Iterable[SchemaDocument]) -> Resources:
    """Put the documents and the meta-schemas where references are looked up; nothing is fetched from elsewhere."""
    trees = BUNDLED | {document.id: document.tree for document in documents}
    resources: list[tuple[str, Resource[Schema]]] = [
        (uri, DRAFT202012.create_resource(tree)) for uri, tree in trees.items()
    ]
    return Registry[Schema]().with_resources(resources).crawl()


#: Documents whose verdicts are kept.
_KEPT = 256

_META_SCHEMA = Draft202012Validator(BUNDLED[DIALECT], registry=closed_resources(()))


@lru_cache(maxsize=_KEPT)
def is_valid_schema(document: BoundedJson) -> bool:
    """Ask the meta-schema, once for each document. Formats are not asserted here; the build checks those that matter.

    The verdict depends on the document's bytes alone, and a process builds registries of the same documents again.
    """
    try:
        return bool(_META_SCHEMA.is_valid(document.value))
    except RecursionError:
        return False
