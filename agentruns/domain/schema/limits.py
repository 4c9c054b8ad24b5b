"""How large a schema registry may become, and how many verdicts it keeps."""

from __future__ import annotations

from attrs import field, fields, frozen

from agentruns.errors import InvalidOptionError

MEBIBYTE = 1024 * 1024


@frozen(kw_only=True)
class JsonSchemaRegistryLimits:
    """Bound a schema registry. Each hard maximum stands in the metadata of its member.

    Attributes:
        documents: how many documents may be registered.
        document_bytes: canonical bytes of one document.
        total_bytes: canonical bytes of all documents together.
        verdicts: how many verdicts are kept; 0 keeps none, and answers stay the same.
    """

    documents: int = field(default=1_024, metadata={"maximum": 4_096})
    document_bytes: int = field(default=2 * MEBIBYTE, metadata={"maximum": 8 * MEBIBYTE})
    total_bytes: int = field(default=64 * MEBIBYTE, metadata={"maximum": 256 * MEBIBYTE})
    verdicts: int = field(default=65_536, metadata={"maximum": 1_048_576})

    def __attrs_post_init__(self) -> None:
        for name in ("documents", "document_bytes", "total_bytes", "verdicts"):
            self._refuse_below(name, minimum=0 if name == "verdicts" else 1)
        if self.total_bytes < self.document_bytes:
            raise InvalidOptionError(
                type_name=type(self).__name__,
                reason="total_below_document",
                option="total_bytes",
                value=str(self.total_bytes),
                bound=f"at least document_bytes, {self.document_bytes}",
            )
        for attribute in fields(type(self)):
            self._refuse_above(attribute.name, maximum=attribute.metadata["maximum"])

    def _refuse_below(self, name: str, *, minimum: int) -> None:
        value = getattr(self, name)
        if type(value) is not int:
            raise self._error(name, reason="wrong_type", bound="an integer")
        if value < minimum:
            raise self._error(name, reason="out_of_range", bound=f"at least {minimum}")

    def _refuse_above(self, name: str, *, maximum: int) -> None:
        if getattr(self, name) > maximum:
            raise self._error(name, reason="out_of_range", bound=f"at most {maximum}")

    def _error(self, name: str, *, reason: str, bound: str) -> InvalidOptionError:
        value = str(getattr(self, name))
        return InvalidOptionError(type_name=type(self).__name__, reason=reason, option=name, value=value, bound=bound)
