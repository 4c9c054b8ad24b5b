"""Draft 2020-12 validation that counts the references it follows and always reports the same first rejection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from attrs import define, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.identity import SchemaReference
from agentruns.domain.schema.acceptance import Acceptor, acceptor_of
from agentruns.domain.schema.dialect import FORMAT_CHECKER, Draft202012Validator, ValidationError, Validator, extend
from agentruns.domain.schema.documents import Resources, SchemaDocument
from agentruns.domain.schema.keywords import pointer_of
from agentruns.domain.schema.verdicts import ACCEPTED, Rejection, Verdict
from agentruns.errors import SchemaUnavailableError

BASE_HOPS = 10_000
HOPS_PER_NODE = 8

Keyword = Callable[[Validator, object, object, dict[str, object]], Iterator[ValidationError]]


@define
class _Hops:
    """Count down the references that one validation may still follow."""

    reference: SchemaReference
    left: int

    def spend(self) -> None:
        if self.left == 0:
            raise SchemaUnavailableError(reason="too_much_work", reference=self.reference)
        self.left -= 1


_HOPS: ContextVar[_Hops] = ContextVar("agentruns_schema_hops")


@frozen(kw_only=True, eq=False)
class DocumentValidator:
    """Judge values by one document.

    Attributes:
        reference: the document's exact triple.
    """

    reference: SchemaReference
    _validator: Validator
    _accepts: Acceptor

    @classmethod
    def over(cls, document: SchemaDocument, resources: Resources) -> DocumentValidator:
        """Make the validator of one document, whose references lead to exactly these resources."""
        validator = _CountingValidator(document.tree, registry=resources, format_checker=FORMAT_CHECKER)
        return cls(reference=document.reference, validator=validator, accepts=acceptor_of(document, resources))

    def judge(self, value: BoundedJson) -> Verdict:
        """Say whether the document accepts the value, or where it first rejects it.

        Raises:
            SchemaUnavailableError: ``too_much_work``, more than 10 000 references and 8 for each node of the value.
            Exception: whatever a keyword or a format checker raises of its own.
        """
        tree = value.value
        if self._accepts(tree):
            return ACCEPTED
        token = _HOPS.set(_Hops(self.reference, BASE_HOPS + HOPS_PER_NODE * value.nodes))
        try:
            error = next(self._validator.iter_errors(tree), None)
            return ACCEPTED if error is None else _rejection(error)
        finally:
            _HOPS.reset(token)


def _rejection(error: ValidationError) -> Rejection:
    return Rejection(
        keyword="false" if error.validator is None else str(error.validator),
        schema_pointer=pointer_of(error.absolute_schema_path),
        pointer=pointer_of(error.absolute_path),
    )


def _counted(keyword: str) -> Keyword:
    """Wrap a reference keyword so that each step through it is counted and stands in the schema pointer."""
    follow: Keyword = Draft202012Validator.VALIDATORS[keyword]

    def counted(
        validator: Validator, target: object, instance: object, schema: dict[str, object]
    ) -> Iterator[ValidationError]:
        _HOPS.get().spend()
        for error in follow(validator, target, instance, schema):
            if keyword == "$ref":  # the library leaves this one out of the path
                error.schema_path.appendleft(keyword)
            yield error

    return counted


def _additional_properties(
    validator: Validator, additional: object, instance: object, schema: dict[str, object]
) -> Iterator[ValidationError]:
    """Do what the keyword says, in the order of names: the library goes through a set, in an order of its own."""
    if not isinstance(instance, dict):
        return
    extras = _additional_names(instance, schema)
    if additional is False and extras:
        yield ValidationError("additional properties are not allowed")
    elif isinstance(additional, dict):
        for name in extras:
            for error in validator.evolve(schema=additional).iter_errors(instance[name]):
                error.path.appendleft(name)
                yield error


def _additional_names(instance: dict[str, object], schema: dict[str, object]) -> list[str]:
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    assert isinstance(named, dict)  # noqa: S101 - the meta-schema says so
    assert isinstance(patterns, dict)  # noqa: S101 - the meta-schema says so
    extras = (name for name in instance if name not in named)
    return [name for name in extras if not any(re.search(pattern, name) for pattern in patterns)]


_CountingValidator = extend(  # type: ignore[no-untyped-call] # the library leaves it untyped
    Draft202012Validator,
    {
        "$ref": _counted("$ref"),
        "$dynamicRef": _counted("$dynamicRef"),
        "additionalProperties": _additional_properties,
    },
)
