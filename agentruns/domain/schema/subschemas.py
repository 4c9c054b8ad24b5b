"""All real subschemas of a set of documents, and what each of them applies or refers to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen
from referencing.exceptions import Unresolvable

from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema.documents import BUNDLED, Resources, SchemaDocument
from agentruns.domain.schema.keywords import IN_PLACE, NOT_APPLIED, REFERENCES, child_schemas


@frozen(kw_only=True, eq=False)
class Subschema:
    """Name one subschema that is an object; ``true`` and ``false`` lead nowhere and are not kept.

    Attributes:
        base: the URI of the document in which it stands.
        reference: the triple of that document, ``None`` for a bundled meta-schema.
        pointer: where in the document.
        schema: its keywords.
        children: the subschemas directly inside, each with the keyword that holds it.
    """

    base: str
    reference: SchemaReference | None
    pointer: str
    schema: Mapping[str, object] = field(repr=False)
    children: list[tuple[str, Subschema]] = field(factory=list, repr=False)

    def successors(self, *, consuming: bool) -> Iterator[Subschema]:
        """Give the children that are applied: in place, or with ``consuming`` to any part of the instance."""
        for keyword, child in self.children:
            if keyword in IN_PLACE or (consuming and keyword not in NOT_APPLIED):
                yield child


@frozen(kw_only=True, eq=False)
class SubschemaIndex:
    """Find subschemas by the object that they are, which is what the validator meets when it follows a reference."""

    subschemas: tuple[Subschema, ...]
    resources: Resources = field(repr=False)
    _by_object: dict[int, Subschema] = field(init=False, repr=False)
    _dynamic: dict[str, list[Subschema]] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        by_object = {id(subschema.schema): subschema for subschema in self.subschemas}
        dynamic: dict[str, list[Subschema]] = {}
        for subschema in self.subschemas:
            if isinstance(name := subschema.schema.get("$dynamicAnchor"), str):
                dynamic.setdefault(name, []).append(subschema)
        object.__setattr__(self, "_by_object", by_object)
        object.__setattr__(self, "_dynamic", dynamic)

    @classmethod
    def over(cls, documents: Iterable[SchemaDocument], resources: Resources) -> SubschemaIndex:
        """Index the documents and the bundled meta-schemas."""
        own = [found for document in documents for found in walk(document)]
        bundled = [found for uri, tree in BUNDLED.items() for found in _walk(tree, base=uri, reference=None)]
        return cls(subschemas=(*own, *bundled), resources=resources)

    def referred(self, subschema: Subschema) -> Iterator[Subschema]:
        """Give every subschema that the references of ``subschema`` may lead to; unresolved ones give nothing."""
        for keyword in REFERENCES:
            if isinstance(reference := subschema.schema.get(keyword), str):
                yield from self.targets(subschema, reference) or ()

    def targets(self, subschema: Subschema, reference: str) -> list[Subschema] | None:
        """Give what one reference may lead to, ``None`` when it leads nowhere or to what is no subschema.

        A name that the target declares as ``$dynamicAnchor`` may lead to each subschema that declares it: which one
        depends on the way by which the validator comes (JSON Schema Core 2020-12 section 8.2.3.2).
        """
        try:
            contents = self.resources.resolver(base_uri=subschema.base).lookup(reference).contents
        except (Unresolvable, ValueError, TypeError):
            return None
        if isinstance(contents, bool):
            return []
        target = self._by_object.get(id(contents))
        if target is None:
            return None
        name = reference.partition("#")[2]
        return self._dynamic[name] if name and target.schema.get("$dynamicAnchor") == name else [target]


def walk(document: SchemaDocument) -> Iterator[Subschema]:
    """Give the real subschemas of a document, itself first.

    Nothing inside ``const``, ``enum``, ``default``, ``examples`` or an unknown keyword is a subschema.
    """
    return _walk(document.tree, base=document.id, reference=document.reference)


def _walk(root: Mapping[str, object], *, base: str, reference: SchemaReference | None) -> Iterator[Subschema]:
    waiting = [Subschema(base=base, reference=reference, pointer="", schema=root)]
    while waiting:
        parent = waiting.pop()
        for keyword, suffix, value in child_schemas(parent.schema):
            if isinstance(value, dict):
                child = Subschema(base=base, reference=reference, pointer=parent.pointer + suffix, schema=value)
                parent.children.append((keyword, child))
                waiting.append(child)
        yield parent
