"""Accept what a document plainly accepts, at a tenth of a validator's cost; the rest is the validator's to judge.

An acceptor may only say yes where the validator would. It says no to everything that it does not know for certain, and
then the validator decides, so that a keyword is left out here without any loss but time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from types import NoneType
from typing import Any, Final, TypeAlias

from attrs import define, field
from referencing.jsonschema import DRAFT202012

from agentruns.domain.schema.dialect import FORMAT_CHECKER, Draft202012Validator
from agentruns.domain.schema.documents import Resources, SchemaDocument

Acceptor: TypeAlias = Callable[[Any], bool]

#: The library's resolvers have no public name.
_Resolver: TypeAlias = Any

#: Subschemas of one acceptor, those behind references counted at each place, and references that lead into each other:
#: together they bound the work for a value by its nodes.
MAXIMUM_SUBSCHEMAS: Final = 2_048
MAXIMUM_CHAIN: Final = 16

_CLASSES: Final[dict[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),  # a float may be one as well, which the validator knows
    "null": (NoneType,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
#: Keywords that one acceptor knows for all members of an object, or items of an array.
_MEMBERS: Final = frozenset({"properties", "required", "additionalProperties"})
_TEXT_BOUNDS: Final = frozenset({"type", "minLength", "maxLength"})
_INTEGER_BOUNDS: Final = frozenset({"type", "minimum", "maximum"})
_DECISIVE: Final = frozenset(Draft202012Validator.VALIDATORS)


def acceptor_of(document: SchemaDocument, resources: Resources) -> Acceptor:
    """Make the acceptor of one document, whose references lead to exactly these resources."""
    root = resources.resolver_with_root(DRAFT202012.create_resource(document.tree))
    return _Compiler().schema(document.tree, root, ())


def _everything(_value: object) -> bool:
    return True


def _nothing(_value: object) -> bool:
    return False


@define
class _Compiler:
    """Turn subschemas into acceptors, as long as there is room."""

    left: int = field(default=MAXIMUM_SUBSCHEMAS)

    def schema(self, schema: Any, resolver: _Resolver, chain: tuple[int, ...]) -> Acceptor:
        """Make the acceptor of a subschema: every keyword that decides anything has to accept."""
        if schema is True:
            return _everything
        if schema is False or self.left == 0:
            return _nothing
        self.left -= 1

        def inner(subschema: Any) -> Acceptor:
            return self.schema(subschema, resolver, chain)

        bounded, known = _bounded(schema)
        words = [word for word in schema if word in _DECISIVE - _MEMBERS - {"$ref"} - known]
        checks = [*bounded, *(self._keyword(word, schema, inner) for word in words)]
        if not _MEMBERS.isdisjoint(schema):
            checks.append(_members(schema, inner))
        if "$ref" in schema:
            checks.append(self._reference(schema["$ref"], resolver, chain))
        return _all(checks)

    def _keyword(self, word: str, schema: Mapping[str, Any], inner: Callable[[Any], Acceptor]) -> Acceptor:
        make = _SIMPLE.get(word)
        if make is not None:
            return make(schema[word])
        if word == "items":
            return _items(inner(schema[word]))
        if word == "allOf":
            return _all([inner(each) for each in schema[word]])
        if word == "anyOf":
            return _any([inner(each) for each in schema[word]])
        return _nothing

    def _reference(self, reference: str, resolver: _Resolver, chain: tuple[int, ...]) -> Acceptor:
        """Follow a reference; one that leads into itself is left to the validator, which counts its steps."""
        found = resolver.lookup(reference)
        target = id(found.contents)
        if target in chain or len(chain) == MAXIMUM_CHAIN:
            return _nothing
        return self.schema(found.contents, found.resolver, (*chain, target))


def _all(checks: list[Acceptor]) -> Acceptor:
    if len(checks) <= 1:
        return checks[0] if checks else _everything

    def accepts(value: object) -> bool:
        for check in checks:  # noqa: SIM110 - a generator would cost more than the checks
            if not check(value):
                return False
        return True

    return accepts


def _bounded(schema: Mapping[str, Any]) -> tuple[list[Acceptor], AbstractSet[str]]:
    """Make one acceptor of a text's or an integer's type and bounds, and name the keywords that it stands for."""
    kind = schema.get("type")
    if kind == "string":
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", inf)
        return [lambda value: value.__class__ is str and shortest <= len(value) <= longest], _TEXT_BOUNDS
    if kind == "integer":
        lowest, highest = schema.get("minimum", -inf), schema.get("maximum", inf)
        return [lambda value: value.__class__ is int and lowest <= value <= highest], _INTEGER_BOUNDS
    return [], frozenset()


def _any(checks: list[Acceptor]) -> Acceptor:
    return lambda value: any(check(value) for check in checks)


def _members(schema: Mapping[str, Any], inner: Callable[[Any], Acceptor]) -> Acceptor:
    """Go through the members of an object once, for three keywords together."""
    named = {name: inner(each) for name, each in schema.get("properties", {}).items()}
    required = frozenset(schema.get("required", ()))
    other = inner(schema.get("additionalProperties", True))

    def accepts(value: Any) -> bool:
        if value.__class__ is not dict:
            return True
        for name, member in value.items():
            if not named.get(name, other)(member):
                return False
        return required <= value.keys()

    return accepts


def _items(check: Acceptor) -> Acceptor:
    return lambda value: value.__class__ is not list or all(map(check, value))


def _type(words: str | list[str]) -> Acceptor:
    classes = {each for word in ([words] if isinstance(words, str) else words) for each in _CLASSES[word]}
    if len(classes) == 1:
        (only,) = classes
        return lambda value: value.__class__ is only
    return lambda value: value.__class__ in classes


def _words(values: list[Any]) -> Acceptor:
    """Accept texts alone: how other values are compared is the validator's to know."""
    texts = frozenset(each for each in values if isinstance(each, str))
    return lambda value: value.__class__ is str and value in texts


def _of(*classes: type) -> Callable[[Callable[[Any], Acceptor]], Callable[[Any], Acceptor]]:
    """Apply a keyword to values of some classes; it says nothing of others."""

    def wrapped(make: Callable[[Any], Acceptor]) -> Callable[[Any], Acceptor]:
        def maker(bound: Any) -> Acceptor:
            check = make(bound)
            return lambda value: value.__class__ not in classes or check(value)

        return maker

    return wrapped


_number, _text, _array, _object = _of(int, float), _of(str), _of(list), _of(dict)

_SIMPLE: Final[dict[str, Callable[[Any], Acceptor]]] = {
    "type": _type,
    "enum": _words,
    "const": lambda only: _words([only]),
    "minimum": _number(lambda bound: lambda value: value >= bound),
    "maximum": _number(lambda bound: lambda value: value <= bound),
    "exclusiveMinimum": _number(lambda bound: lambda value: value > bound),
    "exclusiveMaximum": _number(lambda bound: lambda value: value < bound),
    "minLength": _text(lambda bound: lambda value: len(value) >= bound),
    "maxLength": _text(lambda bound: lambda value: len(value) <= bound),
    "pattern": _text(lambda pattern: lambda value: re.search(pattern, value) is not None),
    "format": lambda name: lambda value: FORMAT_CHECKER.conforms(value, name),
    "minItems": _array(lambda bound: lambda value: len(value) >= bound),
    "maxItems": _array(lambda bound: lambda value: len(value) <= bound),
    "minProperties": _object(lambda bound: lambda value: len(value) >= bound),
    "maxProperties": _object(lambda bound: lambda value: len(value) <= bound),
}
