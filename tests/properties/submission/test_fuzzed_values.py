"""98,000 hostile keys, ids and documents: each is accepted as it stands or refused by an error that repeats nothing."""

from __future__ import annotations

import json
import math
import string
import uuid
from collections.abc import Callable
from typing import Any, Final

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import AttemptId, CheckpointId, EventId, RunId, ThreadId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import key_digest, keyless_digest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidJsonError, InvalidValueError

FuzzOf = Callable[[int], Any]
Shows = Callable[[BaseException, Any], bool]

KEYS, IDS, TENANTS, DOCUMENTS, TREES = 15_000, 15_000, 10_000, 48_000, 10_000
ALNUM: Final = string.ascii_letters + string.digits
LIMITS: Final = JsonLimits.DEFAULT
REASONS: Final = {
    *("input_too_large", "invalid_utf8", "byte_order_mark", "invalid_json", "nesting_too_deep", "duplicate_key"),
    *("non_finite_number", "integer_out_of_range", "number_too_long", "lone_surrogate", "unsupported_type"),
    *("too_many_entries", "too_many_nodes", "string_too_large", "name_too_large"),
}


def is_key(text: str) -> bool:
    return 16 <= len(text) <= 128 and set(text) <= set(ALNUM + "._~-")


def is_tenant(text: str) -> bool:
    return 1 <= len(text) <= 128 and set(text) <= set(ALNUM + "._:-") and text not in {".", ".."}


def is_id(text: str) -> bool:
    try:
        found = uuid.UUID(text)
    except ValueError:
        return False
    return str(found) == text and found.version == 7 and found.variant == uuid.RFC_4122


def check_scalar(cls: Any, offered: Any, is_right: Callable[[str], bool], shows: Shows) -> bool:
    """Accept exactly what is right; refuse the rest by type, by rule, and in silence about the text."""
    expected: type[Exception] = InvalidValueError if type(offered) is str else TypeError
    try:
        made = cls.parse(offered)
    except expected as error:
        refused: Exception = error
    else:
        assert type(offered) is str
        assert is_right(offered)
        assert str(made) == offered
        return True
    assert not (type(offered) is str and is_right(offered))
    assert not shows(refused, offered)
    if isinstance(refused, InvalidValueError):
        assert refused.type_name == cls.__name__
    return False


def test_fuzzed_keys(fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz, tenant, digests = fuzz_of(1), TenantId("tenant-a"), set()
    accepted = set()
    for _ in range(KEYS):
        offered = fuzz.key()
        if check_scalar(AgentSubmissionKey, offered, is_key, shows):
            accepted.add(offered)
            digests.add(key_digest(tenant, AgentSubmissionKey(offered)))
    # Two keys are equal when their bytes are, and no key has the digest of a run without one.
    assert len(digests) == len(accepted) > KEYS // 10
    assert keyless_digest(tenant, RunId.generate()) not in digests


def test_fuzzed_ids(fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz, classes = fuzz_of(2), (RunId, ThreadId, EventId, CheckpointId, AttemptId)
    accepted = sum(check_scalar(classes[each % 5], fuzz.run_id(), is_id, shows) for each in range(IDS))
    assert IDS // 10 < accepted < IDS


def test_fuzzed_tenants(fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz = fuzz_of(3)
    accepted = sum(check_scalar(TenantId, fuzz.tenant(), is_tenant, shows) for _ in range(TENANTS))
    assert TENANTS // 10 < accepted < TENANTS


class IllegalError(Exception):
    """The model refuses."""


def refuse(*_: Any) -> Any:
    raise IllegalError


def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs) if len({name for name, _ in pairs}) == len(pairs) else refuse()


def integer(literal: str) -> Any:
    return int(literal) if len(literal) <= 20 and abs(int(literal)) < 2**53 else refuse()


def double(literal: str) -> Any:
    number = float(literal) if len(literal) <= 1024 else refuse()
    return number if math.isfinite(number) and not 2**53 <= abs(number) < 1e21 else refuse()


def is_document(offered: Any) -> bool:
    """Read a document as the standard library does, strictly, and count what is in it."""
    if type(offered) not in (str, bytes):
        return False
    try:
        text = (offered.encode() if isinstance(offered, str) else offered).decode()
        tree = json.loads(
            refuse() if text.startswith("\ufeff") or len(text.encode()) > LIMITS.max_bytes else text,
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=double,
            parse_constant=refuse,
        )
    except (UnicodeError, json.JSONDecodeError, RecursionError, IllegalError):
        return False
    return is_json(tree)


def is_json(tree: Any) -> bool:
    """Walk a tree level by level; one that contains itself ends at the depth limit."""
    level, depth, nodes = [tree], 0, 0
    while level:
        nodes += len(level)
        if not all(map(is_leaf_within, level)) or nodes > LIMITS.max_nodes:
            return False
        containers = [each for each in level if type(each) in (list, dict)]
        depth += bool(containers)
        if depth > LIMITS.max_depth or any(len(each) > LIMITS.max_entries for each in containers):
            return False
        names = [name for each in containers if isinstance(each, dict) for name in each]
        if not all(is_text(name, LIMITS.max_key_bytes) for name in names):
            return False
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
    return True


def is_leaf_within(leaf: Any) -> bool:
    kind: type = type(leaf)
    if kind is str:
        return is_text(leaf, LIMITS.max_string_bytes)
    if kind is int:
        return bool(-(2**53) < leaf < 2**53)
    if kind is float:
        return bool(math.isfinite(leaf) and not 2**53 <= abs(leaf) < 1e21)
    return kind in (type(None), bool, list, dict)


def is_text(text: Any, longest: int) -> bool:
    if type(text) is not str:
        return False
    try:
        return len(text.encode()) <= longest
    except UnicodeError:
        return False


def check_json(read: Callable[[Any], BoundedJson], offered: Any, *, is_legal: bool, shows: Shows) -> bool:
    expected: type[Exception] = InvalidJsonError
    try:
        made = read(offered)
    except (InvalidJsonError, TypeError) as error:
        refused: Exception = error
    else:
        assert is_legal
        # What was taken is what is stored, and reads back as itself.
        assert BoundedJson.read(made.data) == made
        return True
    assert not is_legal
    if read == BoundedJson.parse and type(offered) not in (str, bytes):
        expected = TypeError
    assert type(refused) is expected
    assert not shows(refused, None)
    if isinstance(refused, InvalidJsonError):
        assert refused.reason in REASONS
    return False


def test_fuzzed_documents(fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz, accepted = fuzz_of(4), 0
    for _ in range(DOCUMENTS):
        offered = fuzz.document()
        accepted += check_json(BoundedJson.parse, offered, is_legal=is_document(offered), shows=shows)
    assert DOCUMENTS // 10 < accepted < DOCUMENTS


def test_fuzzed_trees(fuzz_of: FuzzOf, shows: Shows) -> None:
    fuzz, accepted = fuzz_of(5), 0
    for _ in range(TREES):
        offered = fuzz.python_tree()
        accepted += check_json(BoundedJson.of, offered, is_legal=is_json(offered), shows=shows)
    assert TREES // 10 < accepted < TREES


def test_the_fuzzed_values_are_a_hundred_thousand_with_those_that_are_submitted() -> None:
    assert KEYS + IDS + TENANTS + DOCUMENTS + TREES == 98_000
