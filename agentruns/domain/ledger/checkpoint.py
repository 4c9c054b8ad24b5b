"""The checkpoint between two supersteps: who is ready, over which state."""

from __future__ import annotations

from typing import Self

from attrs import frozen

from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.ids import CheckpointId
from agentruns.domain.numbers import Superstep

_FIRST = Superstep(0)


class _KeptDigest:
    """Keep the digest outside equality."""

    __slots__ = ("_digest",)
    _digest: Digest


@frozen(kw_only=True, weakref_slot=False)
class Checkpoint(_KeptDigest):
    """Describe a checkpoint. It names no event: the event names it. Its state lies beside it.

    Attributes:
        checkpoint_id: chosen by the caller.
        superstep: the one that begins here.
        graph_digest: of the run's graph.
        parent_digest: of the checkpoint before; ``None`` exactly at superstep 0.
        ready_nodes: those of superstep 0 are the graph's entries; a final checkpoint has none.
        state_digest: of the state, as a body.
    """

    checkpoint_id: CheckpointId
    superstep: Superstep
    graph_digest: Digest
    parent_digest: Digest | None
    ready_nodes: ReadyNodes
    state_digest: Digest

    @classmethod
    def initial(
        cls, checkpoint_id: CheckpointId, *, graph_digest: Digest, entry_nodes: ReadyNodes, state_digest: Digest
    ) -> Self:
        """Describe the checkpoint of an admission."""
        return cls(
            checkpoint_id=checkpoint_id,
            superstep=_FIRST,
            graph_digest=graph_digest,
            parent_digest=None,
            ready_nodes=entry_nodes,
            state_digest=state_digest,
        )

    @property
    def preimage(self) -> bytes:
        """The canonical bytes that are digested."""
        parent = "null" if self.parent_digest is None else f'"{self.parent_digest}"'
        return (
            f'{{"checkpoint_id":"{self.checkpoint_id}","graph_digest":"{self.graph_digest}","parent_digest":{parent}'
            f',"ready_nodes":{_ready(self.ready_nodes)},"state_digest":"{self.state_digest}"'
            f',"superstep":"{self.superstep}"}}'
        ).encode("ascii")

    @property
    def digest(self) -> Digest:
        """What the event names."""
        try:
            return self._digest
        except AttributeError:
            digest = digest_body(DigestPurpose.CHECKPOINT, self.preimage)
        object.__setattr__(self, "_digest", digest)
        return digest


def state_digest(state: bytes) -> Digest:
    """Digest the canonical bytes of a state as the body of a checkpoint."""
    return digest_body(DigestPurpose.STATE, state)


def ready_column(nodes: ReadyNodes) -> bytes:
    """Write ready nodes as the canonical array that a checkpoint's row holds."""
    return _ready(nodes).encode("ascii")


def _ready(nodes: ReadyNodes) -> str:
    return "[" + ",".join(f'"{node_id}"' for node_id in nodes) + "]"
