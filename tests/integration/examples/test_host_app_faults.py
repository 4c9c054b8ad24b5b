"""The host application when something breaks: one transaction, repeated or given up whole, and nothing private said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.testing.faults import WireProxy

K1 = "a-key-of-the-test-1"

InService = Callable[..., None]


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("order_reviews")]


def test_a_defect_of_the_services_own_statement_is_an_incident(
    in_service: InService, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(service: Any) -> None:
        await service.execute("ALTER TABLE public.order_reviews ADD CHECK (asked_by <> 'north-desk')")
        answer = await service.ask(K1)
        request_id = answer.headers["X-Request-Id"]
        assert answer.status_code == 500
        assert answer.json() == {"title": "Internal Server Error", "status": 500, "request_id": request_id}
        assert _logged(caplog) == [f"request {request_id}: IntegrityError"]
        assert await service.counts() == (0, 0)

    in_service(work)


def test_corrupt_evidence_gives_nothing_but_the_requests_id(
    in_service: InService, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        await service.execute("UPDATE agentruns.runs SET revision = 7")
        for answer in [await service.send("GET", f"/reviews/{run_id}"), await service.ask(K1)]:
            request_id = answer.headers["X-Request-Id"]
            assert answer.json() == {"title": "Internal Server Error", "status": 500, "request_id": request_id}
        assert [said.split(": ")[1] for said in _logged(caplog)] == ["CorruptDataError", "CorruptDataError"]

    in_service(work)


def test_row_and_run_appear_together(in_service: InService) -> None:
    async def work(service: Any) -> None:
        async with service.engine.connect() as stranger:
            await stranger.execute(text("LOCK TABLE public.order_reviews IN SHARE MODE"))
            asking = asyncio.create_task(service.ask(K1))
            await service.until_waiting(1)  # the run is inserted, our row waits
            assert await service.counts() == (0, 0)
            assert not asking.done()
            await stranger.rollback()
        assert (await asking).status_code == 201
        assert await service.counts() == (1, 1)

    in_service(work)


def test_many_retries_at_once_are_one_review(in_service: InService) -> None:
    async def work(service: Any) -> None:
        answers = await asyncio.gather(*(service.ask(K1) for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
        assert len({answer.json()["run_id"] for answer in answers}) == 1
        assert await service.counts() == (1, 1)

    in_service(work)


@pytest.mark.parametrize("isolation_level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_the_server_undid_is_repeated_whole(
    in_service: InService, caplog: pytest.LogCaptureFixture, isolation_level: str
) -> None:
    async def work(service: Any) -> None:
        async with service.engine.connect() as stranger:
            await stranger.execute(text("LOCK TABLE agentruns.agent_submission_keys IN SHARE MODE"))
            asking = [asyncio.create_task(service.ask(K1)) for _ in range(4)]
            await service.until_waiting(4)  # each has its snapshot, none its row
            await stranger.rollback()
        answers = await asyncio.gather(*asking)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
        assert await service.counts() == (1, 1)
        assert len([said for said in _logged(caplog) if said.startswith("transaction undone")]) >= 3

    caplog.set_level(logging.INFO, "order_reviews")
    in_service(work, isolation_level=isolation_level)


def test_a_lost_answer_to_the_commit_is_found_by_the_retry(in_service: InService, proxy: WireProxy) -> None:
    async def work(service: Any) -> None:
        proxy.lose_answer(b"COMMIT;")
        lost = await service.ask(K1)
        assert (lost.status_code, lost.headers["Retry-After"]) == (503, "1")
        assert await service.counts() == (1, 1)
        found = await service.ask(K1)
        assert found.status_code == 200
        assert await service.counts() == (1, 1)

    in_service(work, url=proxy.url)


def test_a_database_that_is_gone_is_503_and_comes_back(in_service: InService, proxy: WireProxy) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        proxy.take_down()
        for answer in (
            await service.ask(K1),
            await service.send("GET", f"/reviews/{run_id}"),
            await service.send("POST", "/reviews/lookup", {"submission_key": K1}),
        ):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json() == {"title": "Service Unavailable", "status": 503}
        proxy.bring_up()
        assert (await service.ask(K1)).status_code == 200

    in_service(work, url=proxy.url)


def test_patience_ends_and_nothing_is_half_done(in_service: InService) -> None:
    async def work(service: Any) -> None:
        async with service.engine.connect() as stranger:
            await stranger.execute(text("LOCK TABLE public.order_reviews IN SHARE MODE"))
            async with asyncio.timeout(100):
                late = await service.ask(K1)
            assert (late.status_code, late.headers["Retry-After"]) == (503, "1")
            await stranger.rollback()
        assert await service.counts() == (0, 0)
        assert (await service.ask(K1)).status_code == 201

    in_service(work, patience=timedelta(seconds=3))


def test_no_log_holds_a_key_a_token_or_a_note(in_service: InService, caplog: pytest.LogCaptureFixture) -> None:
    async def work(service: Any) -> None:
        note = "a-note-of-the-test"
        await service.ask(K1, note=note)
        await service.ask(K1, note=note + " changed")
        await service.ask(K1, "none", note=note)
        await service.send("POST", "/reviews/lookup", {"submission_key": K1})
        await service.send("POST", "/reviews", {"submission_key": [K1], "order": "A-1"})
        await service.execute("UPDATE agentruns.runs SET revision = 7")
        assert (await service.ask(K1, note=note)).status_code == 500
        assert "CorruptDataError" in caplog.text
        assert [word for word in (K1, "token-of-north", note) if word in caplog.text] == []

    caplog.set_level(logging.DEBUG)
    in_service(work)
