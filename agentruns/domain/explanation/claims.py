"""Who holds a run, and why nobody does who could."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from agentruns.domain.digests import Digest
from agentruns.domain.explanation.explanation import ExplanationReason, ReasonCode
from agentruns.domain.explanation.facts import ClaimConditions, ObservedGraph, ObservedRun
from agentruns.domain.explanation.nodes import deferrals
from agentruns.domain.explanation.waits import is_late, is_overdue
from agentruns.domain.explanation.words import counted, future, past, since, span
from agentruns.domain.timestamps import Timestamp


def lease_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    """Tell of a lease that lives, and what its holder is at."""
    if run.is_held and run.lease_expires_at is not None and run.lease_renewed_at is not None:
        renewed, left = span(run.lease_renewed_at, run.now), span(run.now, run.lease_expires_at)
        yield ExplanationReason(
            code=ReasonCode.LEASE_HELD,
            sentence=f"Epoch {run.epoch} holds the lease, renewed {renewed} ago and expiring in {left};"
            f" {_in_flight(run)}.",
            action=None,
            needs_action=False,
        )


def gate_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    """Tell of a gate that no node's failure has set: whoever held the run could not go on with it."""
    gate = run.due_at
    if gate is not None and not run.is_held and run.now < gate and not any(deferrals(run)):
        yield ExplanationReason(
            code=ReasonCode.DEFERRED,
            sentence=f"The run was given back, and nobody may claim it before {future(gate, run.now)}.",
            action=None,
            needs_action=False,
        )


def graph_reasons(run: ObservedRun, graph_digests: Collection[Digest] | None) -> Iterator[ExplanationReason]:
    """Tell of a graph that this process does not have; without digests nobody asked."""
    graph = run.graph
    if run.is_held or graph is None or graph_digests is None:
        return
    if graph.digest not in graph_digests:
        yield ExplanationReason(
            code=ReasonCode.GRAPH_NOT_DEPLOYED,
            sentence=f"Nobody here has {_named(graph)}, which the run is pinned to.",
            action=f"deploy a worker that has the graph and serves tenant {run.tenant_id}",
            needs_action=run.is_due or is_overdue(run),
        )


def claim_reasons(run: ObservedRun, conditions: ClaimConditions | None) -> Iterator[ExplanationReason]:
    """Tell why nobody has claimed a run that is due."""
    due_at = run.due_at
    if not run.is_due or due_at is None or conditions is None:
        return
    if run.has_no_epoch_left:
        yield _without_epoch(run, due_at)
        return
    needs_action = conditions.live_leases == 0 and is_late(due_at, run.now)
    if not conditions.has_room:
        yield ExplanationReason(
            code=ReasonCode.TENANT_AT_CAPACITY,
            sentence=f"The limit of the tenant is {counted(conditions.maximum_live or 0, 'live lease')}, and it holds"
            f" {conditions.live_leases}; the run has been due {since(due_at, run.now)}.",
            action=f"wait, or raise the limit with `agentruns tenants limit {run.tenant_id} N`",
            needs_action=False,
        )
    if not conditions.is_in_policy and conditions.live_leases == 0:
        yield ExplanationReason(
            code=ReasonCode.NOT_IN_FAIRNESS_POLICY,
            sentence="No fairness policy lists the tenant, so workers that share one never claim the run.",
            action=f"give the workers a policy that lists tenant {run.tenant_id}, under a new shard id",
            needs_action=needs_action,
        )
    yield _unclaimed(run, due_at, conditions, needs_action=needs_action)


def _without_epoch(run: ObservedRun, due_at: Timestamp) -> ExplanationReason:
    return ExplanationReason(
        code=ReasonCode.DUE_NOT_CLAIMED,
        sentence=f"The run has been due {since(due_at, run.now)}, and epoch {run.epoch} was its last one:"
        " nobody can claim it any more.",
        action="submit the work again under a new key",
        needs_action=True,
    )


def _unclaimed(
    run: ObservedRun, due_at: Timestamp, conditions: ClaimConditions, *, needs_action: bool
) -> ExplanationReason:
    leases = f"The tenant has {counted(conditions.live_leases, 'live lease')}."
    if run.lease_expires_at is not None:
        code = ReasonCode.LEASE_EXPIRED
        expired = past(run.lease_expires_at, run.now)
        sentence = f"The lease of epoch {run.epoch} expired {expired}, and nobody has claimed the run since. {leases}"
    elif run.epoch == 0:
        code = ReasonCode.NEVER_CLAIMED
        sentence = f"The run has been ready {since(due_at, run.now)}, and was never claimed. {leases}"
    else:
        code = ReasonCode.DUE_NOT_CLAIMED
        sentence = (
            f"The run has been due {since(due_at, run.now)}, and was not claimed after epoch {run.epoch}. {leases}"
        )
    action = f"start a worker that has the graph and serves tenant {run.tenant_id}"
    return ExplanationReason(code=code, sentence=sentence, action=action, needs_action=needs_action)


def _in_flight(run: ObservedRun) -> str:
    flying = [each for each in run.attempts if run.is_in_flight(each)]
    if not flying:
        return "no node is in flight"
    first = min(flying, key=lambda each: (each.started_at or Timestamp.MIN).micros)
    more = f", and {counted(len(flying) - 1, 'other node')} likewise" if len(flying) > 1 else ""
    return f"node {first.node_id} is in flight in attempt {first.attempt} {since(first.started_at, run.now)}{more}"


def _named(graph: ObservedGraph) -> str:
    known = graph.name is not None and graph.version is not None
    return f"the graph {graph.name} {graph.version} ({graph.digest})" if known else f"the graph {graph.digest}"
