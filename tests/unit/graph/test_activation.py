"""Activations: their digests and who may be activated."""

from __future__ import annotations

from hashlib import sha256

import pytest
import rfc8785
from attrs import frozen

from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.graph.activation import NodeActivation
from agentruns.domain.graph.definition import ReadyNodes
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.errors import InvalidValueError, RefusedError
from agentruns.testing.samples import sample_id


@frozen(kw_only=True)
class Checkpoint:
    digest: Digest
    ready_nodes: ReadyNodes


@frozen(kw_only=True)
class Run:
    tenant_id: TenantId
    run_id: RunId
    superstep: Superstep
    checkpoint: Checkpoint | None


def run(checkpoint: Checkpoint | None) -> Run:
    return Run(
        tenant_id=TenantId("tenant-a"),
        run_id=sample_id(RunId, 1),
        superstep=Superstep(7),
        checkpoint=checkpoint,
    )


CHECKPOINT = Checkpoint(digest=plain_digest(b"{}"), ready_nodes=ReadyNodes.of("a", "b"))


def test_digest_and_effect_key_are_over_all_members() -> None:
    activation = NodeActivation.for_ready_node(run(CHECKPOINT), NodeId("b"))
    members = {
        "tenant_id": "tenant-a",
        "run_id": "0198c0de-0000-7000-8000-000000000001",
        "superstep": "7",
        "checkpoint_digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "node_id": "b",
    }
    expected = sha256(b"agentruns/activation/v1\0" + rfc8785.dumps(members)).hexdigest()
    assert activation.digest.hex == expected
    key = sha256(b"agentruns/effect-key/v1\0" + rfc8785.dumps({"activation_digest": f"sha256:{expected}"})).hexdigest()
    assert activation.effect_key.hex == key
    assert len(key) == 64


@pytest.mark.parametrize("checkpoint", [CHECKPOINT, None])
def test_only_a_ready_node_is_activated(checkpoint: Checkpoint | None) -> None:
    with pytest.raises(RefusedError) as caught:
        NodeActivation.for_ready_node(run(checkpoint), NodeId("c"))
    error = caught.value
    assert (error.reason, error.tenant_id, error.run_id, error.node_id) == (
        "node_not_ready",
        TenantId("tenant-a"),
        sample_id(RunId, 1),
        NodeId("c"),
    )


def test_members_have_exactly_their_classes() -> None:
    with pytest.raises(InvalidValueError) as caught:
        NodeActivation(
            tenant_id=TenantId("tenant-a"),
            run_id=sample_id(RunId, 1),
            superstep=7,  # type: ignore[arg-type]  # what is refused
            checkpoint_digest=plain_digest(b""),
            node_id=NodeId("a"),
        )
    assert caught.value.path == ("superstep",)
