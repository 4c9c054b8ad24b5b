"""A quarantine ends by an evidenced release of a run that verifies from its first event to its last, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.digests import DigestPurpose, digest_body, plain_digest
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.quarantine import QuarantineCause, QuarantineRelease
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode
from agentruns.errors import (
    ExecutableGraphUnavailableError,
    InvalidOptionError,
    InvalidValueError,
    RefusedError,
    RunNotFoundError,
    RunQuarantinedError,
    SchemaVerificationError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.registry import ExecutableGraphRegistryBuilder
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.whole_run import WholeRunReader
from agentruns.store.options import StoreOptions
from agentruns.testing import samples
from agentruns.testing.drives import TENANT
from agentruns.testing.isolating import flip, isolate
from agentruns.testing.listening import Ear, all_told

InQuarantine = Callable[..., None]


async def refused(quarantined: Any, quarantine_id: QuarantineId | None = None, **changed: Any) -> str:
    """What a release that is refused has found; nothing has changed."""
    before = await quarantined.world.everything()
    with pytest.raises(RefusedError) as error:
        await quarantined.release(quarantine_id, **changed)
    assert type(error.value) is RefusedError
    assert (error.value.reason, error.value.tenant_id) == ("not_releasable", TENANT)
    assert await quarantined.world.everything() == before
    return error.value.found


def test_OPS_13_a_run_that_was_repaired_is_released_and_driven_to_its_end(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world, run = quarantined.world, quarantined.run
        await flip(world, run.run_id)
        isolated = await quarantined.row()
        called = list(quarantined.calls)
        done = await quarantined.release()
        assert done.outcome is MutationOutcome.COMMITTED
        assert (done.quarantine.quarantine_id, done.quarantine.cause) == (
            run.quarantine_id,
            QuarantineCause.INTEGRITY_FAILURE,
        )
        assert done.quarantine.component == "chain"

        # Each column of the release, and nothing of the run row but the mark.
        (row,) = await quarantined.releases()
        body = canonical_bytes(
            {
                "quarantine_id": run.quarantine_id.text,
                "authority": {
                    "principal": {"issuer": "https://issuer.example/", "subject": "operator"},
                    "reason": "the page was restored",
                },
                "evidence_digest": str(plain_digest(b'{"ticket":7}')),
                "verification_digest": str(done.verification.digest),
            }
        )
        assert row._asdict() == {
            "tenant_id": TENANT.text,
            "run_id": UUID(run.run_id.text),
            "quarantine_id": UUID(run.quarantine_id.text),
            "released_at": done.released_at.to_datetime(),
            "body": body,
            "digest": digest_body(DigestPurpose.QUARANTINE_RELEASE, body).raw,
        }
        assert isolated.quarantined_at is not None
        assert done.released_at >= Timestamp.from_datetime(isolated.quarantined_at)
        assert (await quarantined.row())._asdict() == {**isolated._asdict(), "quarantined_at": None}
        assert quarantined.calls == called

        while (ended := await world.driven(run.run_id)).outcome is AgentLoopOutcome.YIELDED:
            pass
        assert ended.outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.loaded(run.run_id)).quarantined is False
        assert quarantined.calls == ["a", "b", "c"]

    in_quarantine(work)


def test_SCH_13_workers_are_told_of_a_release_and_of_no_refusal(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        # What the run did before it was isolated has been told of.
        await all_told(quarantined.world.store)
        async with Ear.at(quarantined.world.url) as ear:
            await refused(quarantined)
            await asyncio.sleep(0.3)
            assert ear.payloads == []
            await flip(quarantined.world, quarantined.run.run_id)
            await quarantined.release()
            assert await ear.hears(1) == [TENANT.text]

    in_quarantine(work)


def test_what_was_verified_is_counted_and_named_by_its_digest(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world, run = quarantined.world, quarantined.run
        await flip(world, run.run_id)
        before = await quarantined.row()
        whole = await WholeRunReader(world.store, world.executables).read(TENANT, run.run_id)
        done = await quarantined.release()
        report = done.verification
        assert report == whole.report
        assert report.digest == plain_digest(report.canonical)
        events = await world.rows("SELECT data FROM agentruns.run_events")
        bodies = await world.rows(
            "SELECT state AS body FROM agentruns.run_checkpoints UNION ALL SELECT body FROM agentruns.node_results"
            " UNION ALL SELECT body FROM agentruns.agent_admissions"
        )
        assert int(report.bytes) == sum(len(row.data) for row in events) + sum(len(row.body) for row in bodies)
        assert int(report.head_sequence) == before.head_sequence == len(events) == 7
        assert report.head_digest.raw == before.head_digest
        counted = {
            name: int(getattr(report, name))
            for name in ("supersteps", "attempts", "results", "waits", "calls", "isolations")
        }
        assert counted == {"supersteps": 2, "attempts": 2, "results": 2, "waits": 0, "calls": 0, "isolations": 1}

    in_quarantine(work)


def test_OPS_13_a_run_that_does_not_verify_stays(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        assert await refused(quarantined) == "chain"
        with pytest.raises(RunQuarantinedError):
            await quarantined.world.claimed(quarantined.run.run_id)
        # Something else that is wrong, far from what was found.
        await flip(quarantined.world, quarantined.run.run_id)
        await quarantined.world.rows("UPDATE agentruns.runs SET thread_id = run_id")
        assert await refused(quarantined) == "runs.thread_id"

    in_quarantine(work)


def test_what_only_a_whole_reading_sees_keeps_the_run(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world = quarantined.world
        await flip(world, quarantined.run.run_id)
        await world.rows(
            "INSERT INTO agentruns.tool_invocations SELECT tenant_id, run_id, run_id, 0, 'a', 't', '1.0.0',"
            " 'read_only', '{}', 'prepared', 0 FROM agentruns.runs"
        )
        assert await refused(quarantined) == "tool_invocations.invocation_id"
        await world.rows("DELETE FROM agentruns.tool_invocations")
        await world.rows("UPDATE agentruns.run_quarantines SET component = 'other'")
        assert await refused(quarantined) == "run_quarantines.component"

    in_quarantine(work)


def test_another_id_or_another_run_is_not_released(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        await flip(quarantined.world, quarantined.run.run_id)
        assert await refused(quarantined, QuarantineId.generate()) == "another_quarantine"
        other = await quarantined.world.submitted()
        assert await refused(quarantined, run_id=other) == "another_quarantine"
        with pytest.raises(RunNotFoundError):
            await quarantined.release(run_id=RunId.generate())
        assert await quarantined.releases() == []

    in_quarantine(work)


def test_a_record_that_does_not_verify_itself_is_not_released(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        await flip(quarantined.world, quarantined.run.run_id)
        await quarantined.world.rows("UPDATE agentruns.run_quarantines SET body = '{}'")
        assert await refused(quarantined) == "run_quarantines.body"

    in_quarantine(work)


def test_a_run_whose_epochs_are_used_up_stays(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world = quarantined.world
        await flip(world, quarantined.run.run_id)
        await world.rows("UPDATE agentruns.runs SET fencing_epoch = 9223372036854775807")
        assert await refused(quarantined) == "epoch_exhausted"
        await world.rows("UPDATE agentruns.runs SET fencing_epoch = 9223372036854775806")
        assert (await quarantined.release()).outcome is MutationOutcome.COMMITTED

    in_quarantine(work)


def test_the_same_evidence_again_is_idempotent_whatever_has_happened_since(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world, run = quarantined.world, quarantined.run
        await flip(world, run.run_id)
        first = await quarantined.release()
        # A process without any graph, and another name: the first release stands.
        nothing = ExecutableGraphRegistryBuilder(world.executables.schemas).build()
        again = await quarantined.release(executables=nothing, principal=samples.principal("else"), reason="again")
        assert (again.outcome, again.verification) == (MutationOutcome.IDEMPOTENT, None)
        assert (again.release, again.released_at) == (first.release, first.released_at)
        assert again.release.authority == OperatorAuthority(
            principal=samples.principal("operator"), reason="the page was restored"
        )
        while (await world.driven(run.run_id)).outcome is AgentLoopOutcome.YIELDED:
            pass
        assert (await quarantined.release()).outcome is MutationOutcome.IDEMPOTENT
        assert await refused(quarantined, evidence=BoundedJson.of({"ticket": 8})) == "other_evidence"
        assert len(await quarantined.releases()) == 1

    in_quarantine(work)


def test_a_second_quarantine_needs_a_release_of_its_own(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world, run_id = quarantined.world, quarantined.run.run_id
        await flip(world, run_id)
        first = await quarantined.release()
        second = await isolate(world, run_id)
        # What answers the first one frees nobody from the second.
        assert (await quarantined.release()).outcome is MutationOutcome.IDEMPOTENT
        assert (await quarantined.row()).quarantined_at is not None
        assert await refused(quarantined, second.quarantine_id) == "chain"
        await flip(world, run_id)
        done = await quarantined.release(second.quarantine_id)
        assert (done.outcome, int(done.verification.isolations)) == (MutationOutcome.COMMITTED, 2)
        assert [str(row.quarantine_id) for row in await quarantined.releases()] == [
            first.quarantine.quarantine_id.text,
            second.quarantine_id.text,
        ]
        assert (await quarantined.row()).quarantined_at is None

    in_quarantine(work)


def test_a_release_that_was_altered_keeps_the_run_at_its_next_quarantine(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        world, run_id = quarantined.world, quarantined.run.run_id
        await flip(world, run_id)
        await quarantined.release()
        second = await isolate(world, run_id)
        await flip(world, run_id)
        await world.rows("UPDATE agentruns.run_quarantine_releases SET digest = sha256(digest)")
        assert await refused(quarantined, second.quarantine_id) == "run_quarantine_releases.digest"
        assert await refused(quarantined) == "run_quarantine_releases.body"

    in_quarantine(work)


def test_a_worker_that_had_a_part_of_a_released_run_reads_it_from_its_first_event(
    in_quarantine: InQuarantine,
) -> None:
    async def work(quarantined: Any) -> None:
        world, run_id = quarantined.world, quarantined.run.run_id
        await flip(world, run_id)
        await quarantined.release()
        # This worker has folded the run before, and now finds what it cannot believe.
        await world.rows("UPDATE agentruns.runs SET revision = revision + 1")
        with pytest.raises(RunQuarantinedError) as found:
            await world.driven(run_id)
        await world.rows("UPDATE agentruns.runs SET revision = revision - 1")
        await quarantined.release(found.value.quarantine_id)
        report = (await world.driven(run_id)).report.replay
        assert (report.prefix_sequence, report.events_verified) == (None, 7)

    in_quarantine(work)


def test_without_the_graph_nothing_is_released(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        await flip(quarantined.world, quarantined.run.run_id)
        before = await quarantined.world.everything()
        nothing = ExecutableGraphRegistryBuilder(quarantined.world.executables.schemas).build()
        with pytest.raises(ExecutableGraphUnavailableError) as error:
            await quarantined.release(executables=nothing)
        assert error.value.reason == "not_installed"
        assert await quarantined.world.everything() == before

    in_quarantine(work)


def test_OPS_13_the_runtime_role_is_refused_by_the_server(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        await flip(quarantined.world, quarantined.run.run_id)
        before = await quarantined.world.everything()
        with pytest.raises(SchemaVerificationError) as error:
            await quarantined.release(store=quarantined.world.store)
        assert error.value.reason == "missing_privileges"
        assert await quarantined.world.everything() == before
        assert (await quarantined.release()).outcome is MutationOutcome.COMMITTED

    in_quarantine(work)


def test_the_statement_itself_refuses_another_head_another_record_and_a_clock_that_went_back(
    in_quarantine: InQuarantine,
) -> None:
    async def work(quarantined: Any) -> None:
        world, run_id = quarantined.world, quarantined.run.run_id
        await flip(world, run_id)
        head = (await WholeRunReader(world.store, world.executables).read(TENANT, run_id)).head

        async def word(at: JournalHead = head, quarantine_id: QuarantineId = quarantined.run.quarantine_id) -> Any:
            release = QuarantineRelease(
                quarantine_id=quarantine_id,
                authority=OperatorAuthority(principal=samples.principal(), reason="restored"),
                evidence_digest=plain_digest(b"{}"),
                verification_digest=plain_digest(b"{}"),
            )
            answer = await quarantined.operator.run(
                lambda each: each.quarantines.release(TENANT, run_id, head=at, release=release)
            )
            return answer.word

        before = await world.everything()
        assert await word(evolve(head, digest=plain_digest(b"other"))) == "head"
        assert await word(evolve(head, sequence=head.sequence.next())) == "head"
        assert await word(quarantine_id=QuarantineId.generate()) == "another"
        assert await world.everything() == before
        later = "UPDATE agentruns.{} SET quarantined_at = quarantined_at + interval '1 h'"
        await world.rows(later.format("runs"))
        assert await word() == "another"
        await world.rows(later.format("run_quarantines"))
        assert await word() == "clock"
        for table in ("runs", "run_quarantines"):
            await world.rows(later.format(table).replace("+", "-"))
        assert await world.everything() == before
        assert await word() == "done"
        released = await world.everything()
        assert await word() == await word(quarantine_id=QuarantineId.generate()) == "another"
        assert await world.everything() == released

    in_quarantine(work)


def test_a_store_is_opened_as_an_operators_without_a_warning(
    run: Any, operator_url: str, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def opened(url: str, role: Any) -> None:
        async with AgentRunStore(url, StoreOptions(role=role)):
            pass

    run(opened(operator_url, "operator"))
    assert caplog.records == []
    run(opened(operator_url, "runtime"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(SchemaVerificationError) as error:
        run(opened(database_url, "operator"))
    assert error.value.reason == "missing_privileges"
    with pytest.raises(InvalidOptionError):
        StoreOptions(role=cast("Any", "owner"))


def test_a_reason_that_is_no_line_of_text_is_not_sent(in_quarantine: InQuarantine) -> None:
    async def work(quarantined: Any) -> None:
        before = await quarantined.world.everything()
        for reason in ("", "two\nlines", "x" * 1025):
            with pytest.raises(InvalidValueError):
                await quarantined.release(reason=reason)
        with pytest.raises(TypeError):
            await quarantined.release(evidence={"ticket": 7})
        assert await quarantined.world.everything() == before

    in_quarantine(work)


@pytest.mark.parametrize("is_same", [True, False])
def test_of_two_releasers_one_writes_the_record(in_quarantine: InQuarantine, *, is_same: bool) -> None:
    async def work(quarantined: Any) -> None:
        await flip(quarantined.world, quarantined.run.run_id)
        documents = [BoundedJson.of({"ticket": 7 if is_same else number}) for number in range(6)]
        calls = [quarantined.release(evidence=each) for each in documents]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        words = [getattr(each, "outcome", getattr(each, "found", each)) for each in answers]
        assert words.count(MutationOutcome.COMMITTED) == 1
        lost = MutationOutcome.IDEMPOTENT if is_same else "other_evidence"
        assert words.count(lost) == 5
        (row,) = await quarantined.releases()
        winner = documents[words.index(MutationOutcome.COMMITTED)]
        assert decode(row.body, QuarantineRelease).evidence_digest == winner.digest
        assert (await quarantined.row()).quarantined_at is None

    in_quarantine(work)
