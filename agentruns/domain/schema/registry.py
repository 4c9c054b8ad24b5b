"""A frozen set of JSON Schema documents that answers whether a value satisfies one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema.documents import SchemaDocument, closed_resources
from agentruns.domain.schema.limits import JsonSchemaRegistryLimits
from agentruns.domain.schema.validator import DocumentValidator
from agentruns.domain.schema.verdicts import ACCEPTED, Verdict, Verdicts
from agentruns.errors import SchemaRejectedError, SchemaUnavailableError


@frozen(kw_only=True, eq=False)
class JsonSchemaRegistry:
    """Validate values against installed schemas, from any thread, without ever opening a file or a socket.

    Made by :class:`JsonSchemaRegistryBuilder`. Two registries are equal only when they are the same one.

    Attributes:
        references: every installed document, in the order of its id.
    """

    references: tuple[SchemaReference, ...]
    _validators: Mapping[bytes, DocumentValidator] = field(repr=False)
    _verdicts: Verdicts = field(repr=False)

    @classmethod
    def over(cls, documents: Sequence[SchemaDocument], limits: JsonSchemaRegistryLimits) -> JsonSchemaRegistry:
        """Make the registry of documents that the build has checked."""
        resources = closed_resources(documents)
        validators = (DocumentValidator.over(document, resources) for document in documents)
        return cls(
            references=tuple(document.reference for document in documents),
            validators={validator.reference.digest.raw: validator for validator in validators},
            verdicts=Verdicts(maximum=limits.verdicts),
        )

    def __contains__(self, reference: object) -> bool:
        return isinstance(reference, SchemaReference) and self._find(reference) is not None

    def require(self, reference: SchemaReference, *, part: str | None = None) -> None:
        """Insist that the exact document is installed.

        Raises:
            SchemaUnavailableError: ``not_installed``; register the document and build again.
        """
        self._get(reference, part)

    def validate(self, reference: SchemaReference, value: BoundedJson, part: str | None = None) -> None:
        """Return when the value satisfies the document; ``part`` names it in the error of a larger request.

        Raises:
            SchemaRejectedError: the value does not satisfy the document.
            SchemaUnavailableError: ``not_installed``; ``validator_failed``, the validator raised something of its own;
                ``too_much_work``, it followed too many references. Nothing of it is remembered.
        """
        validator = self._get(reference, part)
        key = validator.reference.digest.raw + value.digest.raw
        verdict = self._verdicts.find(key)
        if verdict is None:
            verdict = self._judge(validator, value, part)
            self._verdicts.keep(key, verdict)
        if verdict != ACCEPTED:
            raise SchemaRejectedError(
                reference=reference,
                keyword=verdict.keyword,
                schema_pointer=verdict.schema_pointer,
                pointer=verdict.pointer,
                part=part,
            )

    def _find(self, reference: SchemaReference) -> DocumentValidator | None:
        validator = self._validators.get(reference.digest.raw)
        if validator is None or not (validator.reference is reference or validator.reference == reference):
            return None
        return validator

    def _get(self, reference: SchemaReference, part: str | None) -> DocumentValidator:
        validator = self._find(reference)
        if validator is None:
            raise SchemaUnavailableError(reason="not_installed", reference=reference, part=part)
        return validator

    def _judge(self, validator: DocumentValidator, value: BoundedJson, part: str | None) -> Verdict:
        """Ask the validator. Its own error may quote the value, so ours is raised where it is no longer in sight."""
        try:
            return validator.judge(value)
        except SchemaUnavailableError as error:
            reason = error.reason
        except Exception:  # noqa: BLE001 - whatever a keyword or a format checker raises is no verdict
            reason = "validator_failed"
        raise SchemaUnavailableError(reason=reason, reference=validator.reference, part=part)
