"""Nothing private is shown: not by values, not by containers of them, not by errors or their traceback."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import parse_canonical, parse_json
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.identity import PrincipalIdentity, SchemaReference
from agentruns.domain.ids import RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import TokenCount
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind, Scope, SubjectId, TenantId, Version
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.uris import IssuerId, SchemaId
from agentruns.domain.wire import decode, from_json, from_wire
from agentruns.errors import InvalidValueError

CANARY = "canary-5e1c8b"
PRIVATE: list[object] = [
    SubjectId(CANARY),
    AgentSubmissionKey(CANARY + "-0123456789"),
    BoundedJson.of({CANARY: CANARY}),
    ScopeSet.of(CANARY),
    PrincipalIdentity(issuer=IssuerId("https://a.example"), subject=SubjectId(CANARY)),
    JournalPayload(
        schema=SchemaReference(
            id=SchemaId("https://a.example/s"), version=Version("1.0.0"), digest=plain_digest(b"{}")
        ),
        kind=JournalEventKind("note"),
        data=BoundedJson.of({CANARY: CANARY}),
    ),
]


@pytest.mark.parametrize("value", PRIVATE, ids=lambda value: type(value).__name__)
def test_repr_hides_what_is_private_in_containers_too(value: object, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("host").warning("%r and %s", value, [value])
    shown = [repr(value), repr([value]), repr({"a": (value,)}), f"{value!r}", f"{[value]}", caplog.text]
    assert not any(CANARY in text for text in shown)


KEY = "https://a.example/" + CANARY
REFUSALS: list[Callable[[], object]] = [
    lambda: TenantId.parse(CANARY + " "),
    lambda: AgentSubmissionKey.parse(CANARY + "-0123456789\n"),
    lambda: Scope.parse(f'"{CANARY}"'),
    lambda: SubjectId.parse(CANARY + "é"),
    lambda: RunId.parse(CANARY * 3),
    lambda: Version.parse("1." + CANARY),
    lambda: SchemaId.parse(KEY + "?"),
    lambda: Digest.parse(CANARY),
    lambda: TokenCount.parse(CANARY),
    lambda: Timestamp.parse(CANARY),
    lambda: parse_json(f'{{"{CANARY}": oops}}', JsonLimits.DEFAULT),
    lambda: parse_json(f'{{"{CANARY}": 1, "{CANARY}": 2}}', JsonLimits.DEFAULT),
    lambda: parse_json(f'"{CANARY}'.encode() + b'\xff"', JsonLimits.DEFAULT),
    lambda: parse_json(f'"{CANARY}\ud800"', JsonLimits.DEFAULT),
    lambda: parse_canonical(f' "{CANARY}"'.encode(), JsonLimits.DEFAULT),
    lambda: BoundedJson.of({CANARY: 2**60}),
    lambda: from_wire({CANARY: CANARY}, PrincipalIdentity),
    lambda: from_wire({"issuer": CANARY, "subject": CANARY}, PrincipalIdentity),
    lambda: from_json(f'{{"issuer": "{KEY}", "subject": ["{CANARY}"]}}', PrincipalIdentity),
    lambda: decode(f'{{"issuer":"{KEY}"}}'.encode(), PrincipalIdentity),
]


@pytest.mark.parametrize("refused", REFUSALS)
def test_no_error_shows_or_carries_what_was_refused(refused: Callable[[], object]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        refused()
    error = caught.value
    own = [line for line in traceback.format_exception(error) if "File" not in line]
    assert (error.__cause__, error.__context__) == (None, None)
    assert not any(CANARY in text for text in [str(error), repr(error), f"{error}", *own])
    assert pickle.loads(pickle.dumps(error)).reason == error.reason  # noqa: S301  # our own bytes
