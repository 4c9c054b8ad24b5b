"""The reducers that come with the library."""

from __future__ import annotations

from hashlib import sha256

import pytest
import rfc8785

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.merging import MergeOperation
from agentruns.domain.graph.reducers import GraphReducer, MergeReducer, NodeUpdate, ReplaceReducer
from agentruns.domain.scalars import NodeId
from agentruns.errors import InvalidValueError, ReducerRejectedError

LIMIT = 2**53 - 1


def updates(*values: JsonTree) -> list[NodeUpdate]:
    return [NodeUpdate(NodeId(f"n{number}"), value) for number, value in enumerate(values)]


def code(reducer: GraphReducer, state: JsonTree, *values: JsonTree) -> str:
    with pytest.raises(ReducerRejectedError) as caught:
        reducer.reduce(state, updates(*values))
    assert caught.value.reason == "reducer_rejected"
    return caught.value.code


def merged(operation: str, state: dict[str, JsonTree], *values: JsonTree) -> JsonTree:
    return MergeReducer({"x": operation}).reduce(state, updates(*({"x": value} for value in values)))


def rejected(operation: str, state: dict[str, JsonTree], *values: JsonTree) -> str:
    return code(MergeReducer({"x": operation}), state, *({"x": value} for value in values))


def digest_of(name: str, parameters: object) -> str:
    definition = {
        "identity": {
            "owner": {"issuer": "https://agentruns.invalid/", "subject": "agentruns"},
            "capability": {"name": name, "version": "1.0.0"},
        },
        "parameters": parameters,
    }
    return f"sha256:{sha256(rfc8785.dumps(definition)).hexdigest()}"  # type: ignore[arg-type]  # JSON


def test_replace_takes_the_only_update() -> None:
    assert ReplaceReducer().reduce({"a": 1}, updates([2])) == [2]
    assert code(ReplaceReducer(), {}, 1, 1) == "several_updates"


def test_replace_is_pinned_by_its_identity() -> None:
    reference = ReplaceReducer().reference
    assert str(reference.definition_digest) == digest_of("reducer.replace", {})
    assert reference.identity.capability.name.text == "reducer.replace"
    assert ReplaceReducer() == ReplaceReducer()


def test_merge_is_pinned_by_its_operations() -> None:
    reducer = MergeReducer({"notes": "append", "count": MergeOperation.ADD}, default="last")
    parameters = {"default": "last", "fields": {"count": "add", "notes": "append"}}
    name = f"reducer.merge.p{sha256(rfc8785.dumps(parameters)).hexdigest()}"  # type: ignore[arg-type]  # JSON
    assert reducer.reference.identity.capability.name.text == name
    assert str(reducer.reference.definition_digest) == digest_of(name, parameters)
    assert reducer == MergeReducer({"count": "add", "notes": "append"}, default=MergeOperation.LAST)


def test_other_operations_are_another_reducer() -> None:
    references = {
        MergeReducer().reference,
        MergeReducer(default="last").reference,
        MergeReducer({"a": "replace"}).reference,
        MergeReducer({"a": "append"}).reference,
        MergeReducer({"b": "append"}).reference,
        ReplaceReducer().reference,
    }
    assert len({reference.identity for reference in references}) == 6
    assert len({reference.definition_digest for reference in references}) == 6


@pytest.mark.parametrize("arguments", [{"fields": {"a": "sum"}}, {"default": "first"}])
def test_an_unknown_operation_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError) as caught:
        MergeReducer(**arguments)  # type: ignore[arg-type]  # what is refused
    assert (caught.value.type_name, caught.value.reason) == ("MergeReducer", "unknown_operation")
    assert caught.value.__cause__ is None


def test_members_that_nobody_names_stay() -> None:
    reducer = MergeReducer({"n": "add"})
    state: JsonTree = {"kept": [1], "n": 1, "old": "x"}
    assert reducer.reduce(state, updates({"n": 2, "old": "y"}, {"n": 3, "new": None})) == {
        "kept": [1],
        "n": 6,
        "old": "y",
        "new": None,
    }
    assert state == {"kept": [1], "n": 1, "old": "x"}


def test_an_update_without_members_changes_nothing() -> None:
    assert MergeReducer().reduce({"a": 1}, updates({})) == {"a": 1}


@pytest.mark.parametrize(("state", "update"), [([], {}), ({}, []), (None, {}), ({}, None), ("a", {}), ({}, 1)])
def test_only_objects_are_merged(state: JsonTree, update: JsonTree) -> None:
    assert code(MergeReducer(), state, update) == "not_an_object"


def test_replace_wants_siblings_to_agree() -> None:
    assert merged("replace", {"x": 0}, {"b": 1, "a": [2]}, {"a": [2], "b": 1}) == {"x": {"a": [2], "b": 1}}
    assert merged("replace", {}, None) == {"x": None}
    assert rejected("replace", {}, 1, 2) == "different_values"
    assert rejected("replace", {}, *[1, True]) == "different_values"
    assert rejected("replace", {}, *[0, False]) == "different_values"


def test_last_takes_that_of_the_highest_node() -> None:
    assert merged("last", {"x": 0}, "a", "c", "b") == {"x": "b"}


def test_append_joins_lists() -> None:
    assert merged("append", {"x": [1]}, [3, 2], [], [[1]]) == {"x": [1, 3, 2, [1]]}
    assert merged("append", {}, [1]) == {"x": [1]}
    assert rejected("append", {"x": "a"}, [1]) == "not_a_list"
    assert rejected("append", {}, [1], {"a": 1}) == "not_a_list"


def test_union_sorts_strings() -> None:
    assert merged("union", {"x": ["b", "é"]}, ["a", "b"], ["B"]) == {"x": ["B", "a", "b", "é"]}
    assert merged("union", {}, []) == {"x": []}
    assert rejected("union", {"x": "abc"}, []) == "not_a_list"
    assert rejected("union", {}, ["a"], [1]) == "not_a_string"


def test_add_sums_integers() -> None:
    assert merged("add", {"x": 1}, 2, -4) == {"x": -1}
    assert merged("add", {}, 2) == {"x": 2}
    assert merged("add", {"x": LIMIT}, LIMIT, -LIMIT) == {"x": LIMIT}
    assert merged("add", {"x": -LIMIT}, 0) == {"x": -LIMIT}
    assert rejected("add", {"x": LIMIT}, 1) == "out_of_range"
    assert rejected("add", {"x": -LIMIT}, -1) == "out_of_range"
    assert rejected("add", {}, *[True]) == "not_an_integer"
    assert rejected("add", {}, 1.5) == "not_an_integer"
    assert rejected("add", {"x": None}, 1) == "not_an_integer"


def test_updates_do_not_show_their_data() -> None:
    assert repr(NodeUpdate(NodeId("a"), {"secret": 1})) == "NodeUpdate(node_id=NodeId('a'))"
