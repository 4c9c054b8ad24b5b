"""Single values with a grammar of their own: names, codes, versions and the identifiers that a host chooses."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Self

from attrs import frozen

from agentruns.errors import InvalidValueError

_UINT64_MAX = 2**64 - 1


def refuse(owner: object, reason: str, *, offset: int | None = None) -> InvalidValueError:
    """Make the error of a scalar class, or of one of its instances, that names the rule and never the text."""
    kind = owner if isinstance(owner, type) else type(owner)
    return InvalidValueError(type_name=kind.__name__, reason=reason, offset=offset)


def refuse_text(cls: type, text: str, *, shortest: int, longest: int, foreign: re.Pattern[str]) -> InvalidValueError:
    """Say why a text is none of the class: its length in bytes first, then its first foreign byte, then its shape."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size < shortest:
        return refuse(cls, "too_short")
    if size > longest:
        return refuse(cls, "too_long")
    if found := foreign.search(text):
        return refuse(cls, "invalid_byte", offset=found.start())
    return refuse(cls, "invalid_format")


class Scalar(ABC):
    """Give every single value the same outside: text in, text out, immutable, equal only within its class."""

    __slots__ = ()

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Read the wire text.

        Raises:
            TypeError: it is no ``str``.
            InvalidValueError: the text is not canonical for the class.
        """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, object]) -> Self:
        return self


@frozen(eq=False, repr=False, weakref_slot=False)
class TextScalar(Scalar):
    """Hold a text that satisfies the grammar of its class. Values of one class are ordered by their bytes.

    Attributes:
        text: the wire text, ASCII.
    """

    text: str

    grammar: ClassVar[re.Pattern[str]] = re.compile(r".+")
    foreign: ClassVar[re.Pattern[str]] = re.compile(r"[^!-~]")
    shortest: ClassVar[int] = 1
    longest: ClassVar[int] = 128
    #: Whether the text may hold a byte that JSON has to escape.
    needs_escape: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        text = self.text
        if type(text) is not str:
            raise TypeError(f"{type(self).__name__} takes str")
        if not (self.shortest <= len(text) <= self.longest and self.grammar.fullmatch(text)):
            raise self.refusal(text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the wire text."""
        return cls(text)

    @classmethod
    def refusal(cls, text: str) -> InvalidValueError:
        """Say which rule the text breaks first."""
        return refuse_text(cls, text, shortest=cls.shortest, longest=cls.longest, foreign=cls.foreign)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Self) -> bool:
        return self.text < other.text if other.__class__ is self.__class__ else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.text <= other.text if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.text > other.text if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.text >= other.text if other.__class__ is self.__class__ else NotImplemented

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.text,)


#: Sets the text of a new value past the guard of frozen records, where its grammar is known to hold.
set_text: Final[Callable[[TextScalar, str], None]] = TextScalar.__dict__["text"].__set__


class _HostName(TextScalar):
    """Check the grammar that tenants and shards share."""

    __slots__ = ()
    grammar = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]+")
    foreign = re.compile(r"[^A-Za-z0-9._:-]")


class TenantId(_HostName):
    """Name a tenant. Compared byte for byte: ``foo`` and ``FOO`` are two tenants."""

    __slots__ = ()


class ShardId(_HostName):
    """Name a shard of runs that one scheduler looks after."""

    __slots__ = ()


class JournalEventKind(TextScalar):
    """Name a kind of event in a run's journal, in lower-kebab."""

    __slots__ = ()
    grammar = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
    foreign = re.compile(r"[^a-z0-9-]")
    longest = 96


class _DottedName(TextScalar):
    """Check the grammar of segments joined by points that capabilities and failures share."""

    __slots__ = ()
    grammar = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*")
    foreign = re.compile(r"[^a-z0-9_.-]")


class CapabilityName(_DottedName):
    """Name an agent, model, tool, graph or reducer within what its owner owns."""

    __slots__ = ()


class FailureCode(_DottedName):
    """Name what went wrong, stable for programs."""

    __slots__ = ()


class FailureOrigin(_DottedName):
    """Name the component that declared a failure."""

    __slots__ = ()


class _GraphName(TextScalar):
    """Check the grammar that nodes and routes share."""

    __slots__ = ()
    grammar = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
    foreign = re.compile(r"[^A-Za-z0-9_.-]")


class NodeId(_GraphName):
    """Name a node within its graph."""

    __slots__ = ()


class RouteId(_GraphName):
    """Name a route within its graph."""

    __slots__ = ()


class GraphNamespace(TextScalar):
    """Say where in nested graphs something stands: node ids joined by ``/``; the empty text is the root."""

    __slots__ = ()
    grammar = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(?:/[A-Za-z0-9][A-Za-z0-9_.-]{0,127})*)?")
    foreign = re.compile(r"[^A-Za-z0-9_./-]")
    shortest = 0
    longest = 512


class CurrencyCode(TextScalar):
    """Name a currency by three capitals. Whether such a currency exists is not checked."""

    __slots__ = ()
    grammar = re.compile(r"[A-Z]{3}")
    foreign = re.compile(r"[^A-Z]")
    shortest = 3
    longest = 3


class Scope(TextScalar):
    """Name a permission: printable ASCII without space, quote or backslash."""

    __slots__ = ()
    grammar = re.compile(r"[!#-\[\]-~]+")
    foreign = re.compile(r"[^!#-\[\]-~]")
    longest = 256


class SubjectId(TextScalar):
    """Name a person or a service with its issuer. Private: ``repr`` does not show it."""

    __slots__ = ()
    grammar = re.compile(r"[ -~]+")
    foreign = re.compile(r"[^ -~]")
    longest = 255
    needs_escape = True

    def __repr__(self) -> str:
        return "SubjectId(redacted)"


class Version(TextScalar):
    """Number a released content: ``major.minor.patch``, each at most 2^64-1. Ordered by number."""

    __slots__ = ()
    grammar = re.compile(r"(?:0|[1-9][0-9]{0,19})\.(?:0|[1-9][0-9]{0,19})\.(?:0|[1-9][0-9]{0,19})")
    foreign = re.compile(r"[^0-9.]")
    shortest = 5
    longest = 62

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if len(self.text) > 5 and max(self.numbers) > _UINT64_MAX:  # noqa: PLR2004  # single digits are always in range
            raise refuse(self, "out_of_range")

    @classmethod
    def refusal(cls, text: str) -> InvalidValueError:
        """Tell a leading zero and a number that is too long apart from a wrong shape."""
        error = super().refusal(text)
        parts = text.split(".")
        if error.reason != "invalid_format" or len(parts) != 3 or not all(parts):  # noqa: PLR2004  # major, minor, patch
            return error
        leading_zero = any(part.startswith("0") and part != "0" for part in parts)
        return refuse(cls, "not_canonical" if leading_zero else "out_of_range")

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Major, minor and patch as integers."""
        major, minor, patch = self.text.split(".")
        return int(major), int(minor), int(patch)

    def __lt__(self, other: Self) -> bool:
        return self.numbers < other.numbers if other.__class__ is self.__class__ else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.numbers <= other.numbers if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.numbers > other.numbers if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.numbers >= other.numbers if other.__class__ is self.__class__ else NotImplemented
