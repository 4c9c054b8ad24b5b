"""Isolate a run: the record, the mark on the run row and the end of the lease in one statement. And let it go on."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Select, Text, Uuid, and_, bindparam, exists, insert, null, select, update

from agentruns.store.sets import POSITION, RUN, ItemSet, columns_of, materialized
from agentruns.store.statements.guards import fence_refusals, head_refusal, judge, lock_runs
from agentruns.store.statements.ready import LAST_EPOCH
from agentruns.store.tables import quarantine_releases, quarantines, runs

ITEMS: Final = ItemSet(
    "item",
    RUN
    | {
        "epoch": BigInteger(),
        "attempt_id": runs.c.lease_attempt_id.type,
        "expected_sequence": BigInteger(),
        "expected_digest": runs.c.head_digest.type,
    }
    | columns_of(
        quarantines.c.quarantine_id,
        quarantines.c.cause_kind,
        quarantines.c.component,
        quarantines.c.body,
        quarantines.c.digest,
    ),
)
RELEASES: Final = ItemSet(
    "item",
    RUN
    | {"expected_sequence": BigInteger(), "expected_digest": runs.c.head_digest.type}
    | columns_of(quarantine_releases.c.quarantine_id, quarantine_releases.c.body, quarantine_releases.c.digest),
)


@cache
def quarantine_claimed() -> Select[Any]:
    """Isolate under a live fence at an exact head: whoever lost the lease cannot isolate its successor's run."""
    locked = lock_runs(ITEMS, skip_locked=False)
    judged = judge(locked, lambda item, now: [*fence_refusals(item, now), head_refusal(item)])
    run = (
        update(runs)
        .values(
            {
                runs.c.quarantined_at: judged.c.now,
                runs.c.lease_attempt_id: null(),
                runs.c.lease_acquired_at: null(),
                runs.c.lease_renewed_at: null(),
                runs.c.lease_expires_at: null(),
            }
        )
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(judged.c[POSITION], runs.c.tenant_id, runs.c.run_id)
        .cte("run")
    )
    columns = ["quarantine_id", "cause_kind", "component", "body", "digest", "epoch"]
    rows = select(run.c.tenant_id, run.c.run_id, judged.c.now, *(judged.c[name] for name in columns)).join_from(
        run, judged, judged.c[POSITION] == run.c[POSITION]
    )
    record = insert(quarantines).from_select([*RUN, "quarantined_at", *columns], rows).cte("insert_quarantine")
    return select(judged.c.answer, judged.c.now).add_cte(record)


@cache
def release() -> Select[Any]:
    """Let a run go on from the head that was verified, and answer the one record that isolates it now.

    The locked run row says which record that is: a release or a quarantine that committed meanwhile has changed its
    mark, though this snapshot shows neither. The epoch's last value is never issued again, so nobody could go on.
    """
    locked = lock_runs(RELEASES, skip_locked=False)
    is_record = and_(
        quarantines.c.tenant_id == locked.c.tenant_id,
        quarantines.c.run_id == locked.c.run_id,
        quarantines.c.quarantine_id == locked.c.quarantine_id,
    )
    recorded_at = quarantines.c.quarantined_at.label("recorded_at")
    named = materialized(select(locked, recorded_at).join_from(locked, quarantines, is_record, isouter=True), "named")
    judged = judge(
        named,
        lambda item, now: [
            (item.c.run_quarantined_at.is_distinct_from(item.c.recorded_at), "another"),
            (item.c.run_quarantined_at.is_(None), "another"),
            (now < item.c.run_quarantined_at, "clock"),
            head_refusal(item),
            (item.c.run_epoch >= LAST_EPOCH, "epoch_exhausted"),
        ],
    )
    run = (
        update(runs)
        .values({runs.c.quarantined_at: null()})
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(judged.c[POSITION], runs.c.tenant_id, runs.c.run_id)
        .cte("run")
    )
    rows = select(
        run.c.tenant_id, run.c.run_id, judged.c.now, judged.c.quarantine_id, judged.c.body, judged.c.digest
    ).join_from(run, judged, judged.c[POSITION] == run.c[POSITION])
    names = [*RUN, "released_at", "quarantine_id", "body", "digest"]
    record = insert(quarantine_releases).from_select(names, rows).cte("insert_release")
    return select(judged.c.answer, judged.c.now).add_cte(record)


@cache
def find() -> Select[Any]:
    """Find a record and its release beside the run that it is about; nothing without the run."""
    is_record = and_(
        quarantines.c.tenant_id == runs.c.tenant_id,
        quarantines.c.run_id == runs.c.run_id,
        quarantines.c.quarantine_id == bindparam("quarantine_id", type_=Uuid(as_uuid=False)),
    )
    answers = and_(
        quarantine_releases.c.tenant_id == quarantines.c.tenant_id,
        quarantine_releases.c.run_id == quarantines.c.run_id,
        quarantine_releases.c.quarantine_id == quarantines.c.quarantine_id,
    )
    return (
        select(
            quarantines.c.body,
            quarantines.c.digest,
            quarantines.c.quarantined_at,
            quarantine_releases.c.body.label("release_body"),
            quarantine_releases.c.digest.label("release_digest"),
            quarantine_releases.c.released_at,
        )
        .join_from(runs, quarantines, is_record, isouter=True)
        .join(quarantine_releases, answers, isouter=True)
        .where(
            runs.c.tenant_id == bindparam("tenant_id", type_=Text()),
            runs.c.run_id == bindparam("run_id", type_=Uuid(as_uuid=False)),
        )
    )


@cache
def find_unreleased() -> Select[Any]:
    """Find the record that no release answers."""
    released = exists(
        select(1).where(
            quarantine_releases.c.tenant_id == quarantines.c.tenant_id,
            quarantine_releases.c.run_id == quarantines.c.run_id,
            quarantine_releases.c.quarantine_id == quarantines.c.quarantine_id,
        )
    )
    return select(quarantines.c.quarantine_id).where(
        and_(
            quarantines.c.tenant_id == bindparam("tenant_id", type_=Text()),
            quarantines.c.run_id == bindparam("run_id", type_=Uuid(as_uuid=False)),
        ),
        ~released,
    )
