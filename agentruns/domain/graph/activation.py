"""One ready node of one checkpoint, and the key by which other systems recognise its effects."""

from __future__ import annotations

from typing import Protocol, Self

from attrs import frozen

from agentruns.domain.digests import Digest, DigestPurpose, digest_members
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.ids import RunId
from agentruns.domain.members import check_members
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.errors import RefusedError


class CheckpointView(Protocol):
    """What an activation needs to know of a checkpoint."""

    @property
    def digest(self) -> Digest:
        """Its digest."""
        ...

    @property
    def ready_nodes(self) -> ReadyNodes:
        """The nodes that it makes ready."""
        ...


class RunView(Protocol):
    """What an activation needs to know of a run."""

    @property
    def tenant_id(self) -> TenantId:
        """The tenant."""
        ...

    @property
    def run_id(self) -> RunId:
        """The run."""
        ...

    @property
    def superstep(self) -> Superstep:
        """The superstep that the run is in."""
        ...

    @property
    def checkpoint(self) -> CheckpointView | None:
        """The current checkpoint; a run that was not admitted has none."""
        ...


@frozen(kw_only=True)
class NodeActivation:
    """Name a ready node of a checkpoint. Every worker and every attempt derives the same digest and effect key."""

    tenant_id: TenantId
    run_id: RunId
    superstep: Superstep
    checkpoint_digest: Digest
    node_id: NodeId

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @classmethod
    def for_ready_node(cls, state: RunView, node_id: NodeId) -> Self:
        """Activate a node of the run's current checkpoint.

        Raises:
            RefusedError: ``node_not_ready``.
        """
        checkpoint = state.checkpoint
        if checkpoint is None or node_id not in checkpoint.ready_nodes:
            raise RefusedError(reason="node_not_ready", tenant_id=state.tenant_id, run_id=state.run_id, node_id=node_id)
        return cls(
            tenant_id=state.tenant_id,
            run_id=state.run_id,
            superstep=state.superstep,
            checkpoint_digest=checkpoint.digest,
            node_id=node_id,
        )

    @property
    def digest(self) -> Digest:
        """Digest over all five members."""
        return digest_members(
            DigestPurpose.ACTIVATION,
            {
                "tenant_id": str(self.tenant_id),
                "run_id": str(self.run_id),
                "superstep": str(self.superstep),
                "checkpoint_digest": str(self.checkpoint_digest),
                "node_id": str(self.node_id),
            },
        )

    @property
    def effect_key(self) -> Digest:
        """What a node gives to systems that remove duplicates; its ``hex`` is the same for every attempt."""
        return digest_members(DigestPurpose.EFFECT_KEY, {"activation_digest": str(self.digest)})
