"""Hypothesis strategies of keys, ids, JSON and schemas."""

from __future__ import annotations

import string
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from agentruns.domain.ids import CheckpointId, EventId, InvocationId, RunId, ThreadId, UuidScalar
from agentruns.domain.scalars import TenantId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission import AgentRunIds
from agentruns.domain.submission_key import AgentSubmissionKey

IdT = TypeVar("IdT", bound=UuidScalar)

_ALNUM: Final = string.ascii_letters + string.digits
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def submission_keys() -> st.SearchStrategy[AgentSubmissionKey]:
    """Draw submission keys of every length."""
    return st.text(_ALNUM + "._~-", min_size=16, max_size=128).map(AgentSubmissionKey)


def tenant_ids() -> st.SearchStrategy[TenantId]:
    """Draw tenants."""
    return st.text(_ALNUM + "_:-", min_size=1, max_size=128).map(TenantId)


@st.composite
def uuid_ids(draw: st.DrawFn, cls: type[IdT]) -> IdT:
    """Draw ids of a class: version 7, the rest any bits."""
    digits = f"{draw(st.integers(0, 2**128 - 1)):032x}"
    return cls(f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-8{digits[17:20]}-{digits[20:]}")


def run_ids() -> st.SearchStrategy[AgentRunIds]:
    """Draw the five candidate ids of a run."""
    return st.builds(
        AgentRunIds,
        run_id=uuid_ids(RunId),
        thread_id=uuid_ids(ThreadId),
        invocation_id=uuid_ids(InvocationId),
        admission_event_id=uuid_ids(EventId),
        initial_checkpoint_id=uuid_ids(CheckpointId),
    )


def scope_sets() -> st.SearchStrategy[ScopeSet]:
    """Draw sets of a few scopes."""
    return st.sets(st.sampled_from(["read", "write", "a/b"])).map(lambda texts: ScopeSet.of(*texts))


def json_documents(*, max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """Draw trees of plain JSON within the default limits, floats and names beyond ASCII among them."""
    numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15)
    return st.recursive(
        st.none() | st.booleans() | numbers | _TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
        max_leaves=max_leaves,
    )


def json_objects(*, max_leaves: int = 8) -> st.SearchStrategy[dict[str, Any]]:
    """Draw objects of plain JSON."""
    return st.dictionaries(_TEXTS, json_documents(max_leaves=max_leaves), max_size=3)


@st.composite
def schema_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw JSON Schemas of objects, for :func:`documents_of` to satisfy."""
    names = draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True))
    types = ["string", "integer", "boolean", "null", "array", "object"]
    document: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": draw(st.sampled_from(types))} for name in names},
    }
    if names:
        document["required"] = draw(st.lists(st.sampled_from(names), max_size=len(names), unique=True))
    return document | ({"additionalProperties": False} if draw(st.booleans()) else {})


def documents_of(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw objects that satisfy a document of :func:`schema_documents`."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "string": _TEXTS,
        "integer": st.integers(-9, 9),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(json_documents(max_leaves=2), max_size=2),
        "object": json_objects(max_leaves=2),
    }
    members = {name: values[each["type"]] for name, each in schema["properties"].items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: value for name, value in members.items() if name in required},
        optional={name: value for name, value in members.items() if name not in required},
    )
