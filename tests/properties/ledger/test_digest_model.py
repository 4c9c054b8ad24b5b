"""LED-06: digests are what anybody computes from ids, epochs, stamps and bytes with a hash and a JSON writer."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from hypothesis import given

from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.testing.histories import History
from agentruns.testing.strategies.histories import histories

NOTHING = bytes(32)


def written(tree: Any) -> bytes:
    """Write what has no fractions in it, and no character for which an order would matter, as RFC 8785 says."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def hashed(purpose: str, *parts: bytes) -> bytes:
    return sha256(b"".join((f"agentruns/{purpose}/v1".encode(), b"\0", *parts))).digest()


def text_of(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


def envelope(event: Any) -> bytes:
    """Spell an event's columns, its data as a value among them."""
    return written(
        {
            "data": json.loads(event.data),
            "epoch": str(event.epoch),
            "event_id": str(event.event_id),
            "kind": str(event.kind),
            "recorded_at": event.recorded_at.to_datetime().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "run_id": str(event.run_id),
            "schema_digest": text_of(event.schema_digest.raw),
            "sequence": str(event.sequence),
            "tenant_id": str(event.tenant_id),
        }
    )


def checkpoint(row: Any, *, graph: bytes, parent: bytes | None) -> bytes:
    preimage = {
        "checkpoint_id": str(row.checkpoint_id),
        "graph_digest": text_of(graph),
        "parent_digest": None if parent is None else text_of(parent),
        "ready_nodes": json.loads(row.ready),
        "state_digest": text_of(hashed("state", row.state)),
        "superstep": str(row.superstep),
    }
    return hashed("checkpoint", written(preimage))


def bodies(commit: DraftedCommit) -> list[tuple[str, bytes, bytes]]:
    """List purpose, bytes and digest of every body of a commit but its checkpoint."""
    found: list[tuple[str, bytes, bytes]] = []
    if commit.admission is not None:
        found.append(("admission", commit.admission.body, commit.admission.admission_digest.raw))
    for each in commit.results:
        purpose = "node-result" if each.status == "succeeded" else "node-failure"
        found.append((purpose, each.body, each.digest.raw))
    found.extend(("wait", each.registration, each.digest.raw) for each in commit.waits)
    found.extend(
        ("wait-resolution", settled.resolution, settled.resolution_digest.raw)
        for settled in commit.settlements
        if settled.resolution is not None and settled.resolution_digest is not None
    )
    if commit.outcome is not None:
        purpose = "cancellation-request" if commit.outcome.kind == "cancellation" else "outcome"
        found.append((purpose, commit.outcome.body, commit.outcome.digest.raw))
    return found


def named(commit: DraftedCommit) -> set[str]:
    """Collect every digest that a commit's events name."""
    return set().union(*(_digests(json.loads(event.data)) for event in commit.events))


def _digests(tree: Any) -> set[str]:
    if isinstance(tree, dict):
        return set().union(*map(_digests, tree.values()))
    if isinstance(tree, list):
        return set().union(*map(_digests, tree))
    return {tree} if str(tree).startswith("sha256:") else set()


@given(histories())
def test_LED_06_an_independent_model_computes_the_digests_of_events_checkpoints_and_bodies(history: History) -> None:
    graph = history.graph.digest.raw
    previous, parent = NOTHING, None
    for commit in history.commits:
        for event in commit.events:
            previous = hashed("event", previous, envelope(event))
            assert event.digest.raw == previous
        for purpose, data, digest in bodies(commit):
            assert digest == hashed(purpose, data)
            assert data == written(json.loads(data))
            assert text_of(digest) in named(commit)
        if commit.checkpoint is not None:
            parent = checkpoint(commit.checkpoint, graph=graph, parent=parent)
            assert commit.checkpoint.digest.raw == parent
            assert text_of(parent) in named(commit)
