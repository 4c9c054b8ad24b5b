"""A document of the application's, under a schema that it names, as the journal carries it."""

from __future__ import annotations

from typing import ClassVar, Self

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.members import check_members
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.wire import KeptBytes, encode


@frozen(kw_only=True)
class JournalPayload(KeptBytes):
    """Hold a document, its schema and its kind. The envelope has a plain digest and at most 2 MiB.

    Attributes:
        schema: that the data satisfies.
        kind: what the document is, in the application's words.
        data: JSON within the maximum limits.
    """

    max_wire_bytes: ClassVar[int] = 2 * MIB

    schema: SchemaReference
    kind: JournalEventKind
    data: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.MAXIMUM})

    def __attrs_post_init__(self) -> None:
        check_members(self)
        encode(self)

    @classmethod
    def of(cls, schema: SchemaReference, kind: str, tree: JsonTree) -> Self:
        """Take a document from a tree of plain JSON; its bytes are taken at once.

        Raises:
            InvalidValueError: the kind breaks its grammar, or the tree is no JSON within the maximum limits.
        """
        return cls(schema=schema, kind=JournalEventKind(kind), data=BoundedJson.of(tree, JsonLimits.MAXIMUM))
