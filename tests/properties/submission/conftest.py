"""Values that nobody should send, seeded: nearly right, plainly wrong, and built to break a parser."""

from __future__ import annotations

import enum
import json
import string
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest
from attrs import frozen

#: In every hostile value that is long enough; no error repeats it.
CANARY: Final = "canary5e1fd00d"
ALPHABET: Final = string.ascii_letters + string.digits
ODD: Final = "\0\x01\t\n\x1f \"'\\/%{}[]<>;:$é\u0301\u200b\u2028\ud800\udfff\ufeff\uffff\U0001f600\u0663"
ID: Final = "0198c0de-0000-7000-8000-{:012x}"


class Text(str):
    """No ``str`` of JSON, though it looks like one."""

    __slots__ = ()


class Number(enum.IntEnum):
    """No number of JSON, though it counts as one."""

    ONE = 1


#: What is no text at all, and no JSON either.
NO_TEXT: Final[tuple[Any, ...]] = (
    *(None, True, 0, 1.5, b"0123456789abcdef", bytearray(b"0123456789abcdef"), ["0123456789abcdef"]),
    *({"key": 1}, ("0123456789abcdef",), object(), Text("0123456789abcdef"), UUID(int=7), Decimal(1)),
)
NO_JSON: Final[tuple[Any, ...]] = (
    *((1, 2), {1}, frozenset(), b"bytes", bytearray(b"bytes"), Decimal("1.5"), datetime(2026, 1, 2, tzinfo=UTC)),
    *(UUID(int=7), Number.ONE, Text(CANARY), object(), float("nan"), float("inf"), 1e16, 2**53, -(2**63), 10**400),
    *("\ud800", f"{CANARY}\udfff", {1: "number"}, {None: CANARY}, {"\ud83d": 1}, {Text("a"): 1}, range(3), print),
)
#: Pieces of text that a parser of JSON has to refuse, or to read with care.
PIECES: Final = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e999", "1e16", "9007199254740993", "-9223372036854775808"),
    *('{"a":1,"a":2}', '{"a":1,"\\u0061":2}', '"\\ud83d"', '"\\ud83d\\ude00"', '{"\\udc00":1}', '"\\u0000"', '"\0"'),
    *("01", "+1", "1.", ".5", "-", "-0", "-0.0", "1e21", "0x10", "1_000", "'a'", "tru", "nul", "//", "[1,]", '{"a":}'),
    *("{,}", '"\\x41"', '"\\u12"', '"a\nb"', "[[[]", "}", "\ufeff1", "1 2", "", " ", "\u00a0", "9" * 1025, "1" * 400),
    *('"\u2028"', '"\U0010ffff"', "1E30", "1.7976931348623157e308", "5e-324", '{"":0}', "[]", "{}", "null"),
)


@frozen
class Fuzz:
    """Make hostile values, the same for the same seed."""

    dice: Random

    def text(self, longest: int = 40) -> str:
        """Write anything: letters for the most part."""
        alphabet = ALPHABET if self.dice.random() < 0.5 else ALPHABET + ODD
        made = "".join(self.dice.choices(alphabet, k=self.dice.randrange(longest)))
        return f"{CANARY}{made}" if self.dice.random() < 0.4 else made

    def nearly(self, right: str) -> str:
        """Damage a text that is right at one place, or leave it alone."""
        at, odd = self.dice.randrange(len(right) + 1), self.dice.choice(ODD + "A.-_~z0")
        ways = (
            right,
            right[:at] + odd + right[at:],
            right[:at] + odd + right[at + 1 :],
            right[:at] + right[at + 1 :],
            right.upper(),
            right + "\n",
            " " + right,
            f"{{{right}}}",
            f"urn:uuid:{right}",
            right * self.dice.randrange(2, 300),
        )
        return self.dice.choice(ways)

    def key(self) -> Any:
        """Offer something as a submission key."""
        if self.dice.random() < 0.05:
            return self.dice.choice(NO_TEXT)
        made = "".join(self.dice.choices(ALPHABET + "._~-", k=self.dice.choice((0, 1, 15, 16, 17, 73, 127, 128, 129))))
        return self.dice.choice((self.text(200), made, self.nearly(made)))

    def run_id(self) -> Any:
        """Offer something as an id."""
        if self.dice.random() < 0.05:
            return self.dice.choice(NO_TEXT)
        made = ID.format(self.dice.getrandbits(48))
        version = self.dice.choice("12345678f")
        return self.dice.choice((self.text(60), made, self.nearly(made), made[:14] + version + made[15:]))

    def tenant(self) -> Any:
        """Offer something as a tenant's id."""
        if self.dice.random() < 0.05:
            return self.dice.choice(NO_TEXT)
        made = "".join(self.dice.choices(ALPHABET + "._:-", k=self.dice.choice((0, 1, 2, 20, 127, 128, 129))))
        return self.dice.choice((self.text(150), made, self.nearly(made), ".", ".."))

    def tree(self, depth: int = 4) -> Any:
        """Grow a tree of JSON's types; what is in it may be out of bounds, rarely."""
        kind = self.dice.randrange(12 if depth else 8)
        if kind >= 10:
            return {self._name(): self.tree(depth - 1) for _ in range(self.dice.randrange(5))}
        if kind >= 8:
            return [self.tree(depth - 1) for _ in range(self.dice.randrange(5))]
        leaves: tuple[Callable[[], Any], ...] = (
            lambda: None,
            lambda: self.dice.random() < 0.5,
            lambda: self.dice.randint(-(2**53) + 1, 2**53 - 1) >> self.dice.randrange(54),
            lambda: self.dice.uniform(-1e6, 1e6),
            lambda: self.dice.choice((-0.0, 1e21, 5e-324, 1.0, 1e-7, 2.5)),
            lambda: self.text(12).encode("utf-8", "ignore").decode(),
            lambda: "a\0b\u2028\U0001f600",
            lambda: "x" * self.dice.choice((0, 1, 100, 2000)),
        )
        return leaves[kind]()

    def object(self) -> dict[str, Any]:
        """Put a tree into an object."""
        return {"in": self.tree()}

    def python_tree(self) -> Any:
        """Grow a tree as Python holds it, and put something into it that is no JSON, more often than not."""
        tree = self.tree()
        if self.dice.random() < 0.4:
            return tree
        foreign = self.dice.choice(NO_JSON)
        return self.dice.choice(
            (foreign, [tree, foreign], {"in": {"deep": [foreign]}}, self._deep(tree), self._circle())
        )

    def document(self) -> Any:
        """Write a document of JSON and damage it, more often than not."""
        written = json.dumps(self.tree(), ensure_ascii=self.dice.random() < 0.5)
        at = self.dice.randrange(len(written) + 1)
        piece = self.dice.choice(PIECES)
        text = self.dice.choice(
            (
                written,
                written,
                written[:at] + piece + written[at:],
                written[:at],
                f'{{"{CANARY}":[{piece},{written}]}}',
                f"[{written},{piece}]",
                piece,
                self._nested(),
            )
        )
        return self._encoded(text)

    def _name(self) -> str:
        return self.dice.choice(
            ("a", "b", "n", "é", "\0", "", "x" * 20, "\ufb33", "\U0001f600", str(self.dice.random()))
        )

    def _deep(self, tree: Any) -> Any:
        for _ in range(self.dice.choice((20, 31, 32, 33, 64, 65, 2000))):
            tree = [tree]
        return tree

    def _circle(self) -> Any:
        circle: list[Any] = []
        circle.append({"again": circle})
        return circle

    def _nested(self) -> str:
        """Nest to a bound, a step past it, or absurdly deep; closed or not."""
        depth = self.dice.choice((31, 32, 33, 64, 65, 500)) if self.dice.random() < 0.99 else 100_000
        opening, closing = self.dice.choice((("[", "]"), ('{"a":', "}")))
        return opening * depth + "1" + closing * self.dice.choice((depth, depth, depth - 1, 0))

    def _encoded(self, text: str) -> Any:
        """Hand the text over as text, as bytes, or in bytes that are no UTF-8."""
        chance = self.dice.random()
        if chance < 0.3:
            return text
        data = text.encode("utf-8", "surrogatepass")
        if chance < 0.9:
            return data
        at = self.dice.randrange(len(data) + 1)
        return self.dice.choice(
            (
                text.encode("utf-16", "surrogatepass"),
                b"\xef\xbb\xbf" + data,
                data[:at] + bytes([self.dice.randrange(256)]) + data[at:],
                data[:at] + b"\xc0\x80" + data[at:],
                data[:at] + b"\xed\xa0\x80" + data[at:],
                bytearray(data),
            )
        )


@pytest.fixture
def fuzz_of() -> Callable[[int], Fuzz]:
    """Make hostile values by a seed: ``fuzz_of(7)``."""
    return lambda seed: Fuzz(Random(seed))


@pytest.fixture
def shows() -> Callable[[BaseException, Any], bool]:
    """Tell whether an error shows anything of what was sent; the place in a document is an attribute, in no text."""

    def told(error: BaseException, sent: Any) -> bool:
        said = f"{error} {error!r}"
        if CANARY in said or error.__cause__ is not None or error.__context__ is not None:
            return True
        return isinstance(sent, str) and len(sent) >= 12 and (sent in said or sent[:12] in said)

    return told
