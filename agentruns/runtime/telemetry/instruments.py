"""The instruments: names, units and what they count. Their dimensions never name a tenant or a run."""

from __future__ import annotations

from typing import Final

from attrs import frozen


@frozen
class Instrument:
    """Describe a counter, a histogram or a gauge, by OpenTelemetry's conventions."""

    unit: str
    description: str


COUNTERS: Final = {
    "agentruns.submissions": Instrument("{submission}", "Submissions, by outcome."),
    "agentruns.claims": Instrument("{claim}", "Statements that asked for ready runs, by outcome."),
    "agentruns.drives": Instrument("{drive}", "Drives, by outcome."),
    "agentruns.node.attempts": Instrument("{attempt}", "Committed starts and completions of node attempts."),
    "agentruns.nodes.abandoned": Instrument("{node}", "Nodes that did not end when they were aborted."),
    "agentruns.commits": Instrument("{commit}", "Commits of drives."),
    "agentruns.commits.fused": Instrument("{commit}", "Commits that held more than one kind of fact."),
    "agentruns.barriers": Instrument("{barrier}", "Barriers that drives committed."),
    "agentruns.replay.supersteps": Instrument("{superstep}", "Supersteps that were planned again and found equal."),
    "agentruns.replay.events": Instrument("{event}", "Events that were verified."),
    "agentruns.replay.bytes": Instrument("By", "Bytes of events and bodies that were verified."),
    "agentruns.replay.prefix_hits": Instrument("{replay}", "Replays that began after a prefix verified before."),
    "agentruns.runs.finished": Instrument("{run}", "Runs that this process ended, by status."),
    "agentruns.runs.quarantined": Instrument("{run}", "Runs that this process isolated, by cause."),
    "agentruns.set.alone": Instrument("{item}", "Items that had to be sent alone."),
    "agentruns.lease.renewals": Instrument("{renewal}", "Renewals of leases, by outcome."),
    "agentruns.lease.lost": Instrument("{lease}", "Leases that were lost under a drive, by reason."),
    "agentruns.database.retries": Instrument("{retry}", "Repetitions after passing trouble, by class of SQLSTATE."),
    "agentruns.fair.reservations": Instrument("{reservation}", "Turns that were reserved."),
    "agentruns.wakeups": Instrument("{notification}", "Notifications that were sent, received, or saved by another."),
    "agentruns.supervision": Instrument("{run}", "Runs that supervision settled, or could not."),
}

HISTOGRAMS: Final = {
    "agentruns.submit.duration": Instrument("s", "Time of a submission."),
    "agentruns.claim.duration": Instrument("s", "Time of a statement that asked for ready runs."),
    "agentruns.drive.duration": Instrument("s", "Time of a drive."),
    "agentruns.node.duration": Instrument("s", "Time from a node's call to the end that counts."),
    "agentruns.replay.duration": Instrument("s", "Time of a replay."),
    "agentruns.batch.width": Instrument("{node}", "Nodes that were started together."),
    "agentruns.set.items": Instrument("{item}", "Items of a statement over a set."),
    "agentruns.lease.margin": Instrument("s", "Time that was left when a lease was renewed."),
    "agentruns.fair.distance": Instrument("{reservation}", "Reservations of a shard since the tenant's last."),
    "agentruns.loop.blocked": Instrument("s", "Time for which a node held the event loop."),
}

GAUGES: Final = {
    "agentruns.runs.due": Instrument("{run}", "Runs of a worker's tenants that may be claimed now, up to 10 000."),
    "agentruns.runs.oldest_due": Instrument("s", "Time for which the first of them has been due."),
    "agentruns.runs.without_worker": Instrument("{run}", "Of these, runs of graphs that the worker does not have."),
    "agentruns.runs.quarantined_now": Instrument("{run}", "Runs of a worker's tenants that are isolated."),
    "agentruns.listen.degraded": Instrument("{listener}", "Listeners of this process that hear nothing."),
}
