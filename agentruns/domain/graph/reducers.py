"""How the updates of a superstep become its next state: the contract, and the two reducers that come with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from attrs import field, frozen

from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.graph.merging import MergeOperation, merge
from agentruns.domain.identity import CapabilityIdentity, CapabilityReference, PrincipalIdentity
from agentruns.domain.members import check_members
from agentruns.domain.scalars import CapabilityName, NodeId, SubjectId, Version
from agentruns.domain.uris import IssuerId
from agentruns.domain.wire import to_wire
from agentruns.errors import InvalidValueError, ReducerRejectedError

_OWNER: Final = PrincipalIdentity(issuer=IssuerId("https://agentruns.invalid/"), subject=SubjectId("agentruns"))
_VERSION: Final = Version("1.0.0")


@frozen(kw_only=True)
class GraphReducerReference:
    """Pin a reducer.

    Attributes:
        definition_digest: plain digest of its declared identity and parameters, never of its source.
    """

    identity: CapabilityIdentity
    definition_digest: Digest

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen
class NodeUpdate:
    """Hand one node's update to a reducer, which may change its copy.

    Attributes:
        node_id: updates come in the order of their nodes' ids.
        update: plain JSON that the graph's update schema has accepted.
    """

    node_id: NodeId
    update: JsonTree = field(repr=False)


class GraphReducer(Protocol):
    """Make the next state from a state and updates.

    Pure and deterministic: no I/O, no clock, no randomness. It is called on copies, outside any transaction, possibly
    in a thread, and again on replay, where its output is compared; behaviour that changes under an unchanged digest
    makes committed history look corrupt. It may raise :class:`ReducerRejectedError` to refuse the updates, and
    :class:`DeploymentError` when it cannot run now; any other exception fails the run.
    """

    @property
    def reference(self) -> GraphReducerReference:
        """What a graph pins."""
        ...

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        """Give the next state; there is at least one update."""
        ...


@frozen
class ReplaceReducer:
    """Let exactly one update become the state; siblings that both bring one are refused."""

    reference: GraphReducerReference = field(init=False)

    @reference.default
    def _own_reference(self) -> GraphReducerReference:
        return _reference("reducer.replace", {})

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:  # noqa: ARG002  # it is replaced
        """Give the only update.

        Raises:
            ReducerRejectedError: ``several_updates``.
        """
        if len(updates) != 1:
            raise ReducerRejectedError(code="several_updates")
        return updates[0].update


def _operations(fields: Mapping[str, MergeOperation | str]) -> tuple[tuple[str, MergeOperation], ...]:
    return tuple(sorted((name, _operation(each)) for name, each in fields.items()))


def _operation(name: MergeOperation | str) -> MergeOperation:
    try:
        return MergeOperation(name)
    except ValueError:
        raise InvalidValueError(type_name="MergeReducer", reason="unknown_operation") from None


@frozen(init=False)
class MergeReducer:
    """Merge updates into an object member by member; members that no update names stay as they are.

    The operations are part of the definition, so reducers with other operations have another identity.

    Attributes:
        fields: names of members with their operation, sorted.
        default: the operation of every other member.
    """

    fields: tuple[tuple[str, MergeOperation], ...]
    default: MergeOperation
    reference: GraphReducerReference

    def __init__(
        self, fields: Mapping[str, MergeOperation | str] | None = None, *, default: MergeOperation | str = "replace"
    ) -> None:
        operations, fallback = _operations(fields or {}), _operation(default)
        parameters: dict[str, JsonTree] = {
            "default": fallback.value,
            "fields": {name: operation.value for name, operation in operations},
        }
        name = f"reducer.merge.p{plain_digest(canonical_bytes(parameters)).hex}"
        self.__attrs_init__(fields=operations, default=fallback, reference=_reference(name, parameters))

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        """Merge the updates into the state, member by member.

        Raises:
            ReducerRejectedError: ``not_an_object``, or what the operation of a member refuses.
        """
        if type(state) is not dict:
            raise ReducerRejectedError(code="not_an_object")
        operations = dict(self.fields)
        merged = dict(state)
        for name, values in _values(updates).items():
            merged[name] = merge(
                operations.get(name, self.default), values, present=[state[name]] if name in state else []
            )
        return merged


def _values(updates: Sequence[NodeUpdate]) -> dict[str, list[JsonTree]]:
    """Gather what the updates say about each member, in the order of the updates."""
    values: dict[str, list[JsonTree]] = {}
    for name, value in _members(updates):
        values.setdefault(name, []).append(value)
    return values


def _members(updates: Sequence[NodeUpdate]) -> Iterator[tuple[str, JsonTree]]:
    for each in updates:
        if type(each.update) is not dict:
            raise ReducerRejectedError(code="not_an_object")
        yield from each.update.items()


def _reference(name: str, parameters: JsonTree) -> GraphReducerReference:
    """Pin one of the reducers of this module: its definition is its identity and its parameters."""
    identity = CapabilityIdentity(
        owner=_OWNER, capability=CapabilityReference(name=CapabilityName(name), version=_VERSION)
    )
    definition: dict[str, JsonTree] = {"identity": to_wire(identity), "parameters": parameters}
    return GraphReducerReference(identity=identity, definition_digest=plain_digest(canonical_bytes(definition)))
