"""The host application over HTTP: retries, conflicts, refusals, withdrawals, and what a client is told."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[3] / "examples" / "host_app"

K1, K2 = "a-key-of-the-test-1", "a-key-of-the-test-2"
UNKNOWN = "0197a000-0000-7000-8000-000000000000"
EVENT = "0197a000-0000-7000-8000-000000000001"

InService = Callable[..., None]


def test_a_retry_finds_the_review_and_a_worker_ends_it(in_service: InService) -> None:
    async def work(service: Any) -> None:
        first, again = await service.ask(K1), await service.ask(K1)
        run_id = first.json()["run_id"]
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert first.json()["status"] == "active"
        assert await service.counts() == (1, 1)
        async with service.worker():
            ended = await service.ended(run_id)
        assert ended["outcome"] == {
            "kind": "succeeded",
            "result": {"decision": "ship", "findings": []},
            "failure": None,
        }
        found = await service.send("POST", "/reviews/lookup", {"submission_key": K1})
        assert (found.status_code, found.json()) == (200, ended)
        assert (await service.ask(K1)).json() == ended
        assert (await service.ask(K1, who="north-later")).status_code == 200  # whose scopes are others by now

    in_service(work)


def test_the_command_drives_the_reviews(in_service: InService) -> None:
    async def work(service: Any) -> None:
        program = Path(sys.executable).with_name("agentruns")
        worker = await asyncio.create_subprocess_exec(
            *(program, "worker", "--app", "order_reviews.agent:deployment"),
            cwd=PROJECT,
            env={**os.environ, "AGENTRUNS_DATABASE_URL": service.url, "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=asyncio.subprocess.PIPE,
        )
        run_id = (await service.ask(K1)).json()["run_id"]
        assert (await service.ended(run_id))["status"] == "succeeded"
        worker.terminate()
        _, written = await worker.communicate()
        assert worker.returncode == 0
        assert b"Working for every tenant; slots: 4, graphs: 1" in written

    in_service(work)


def test_a_review_refers_what_it_finds(in_service: InService) -> None:
    async def work(service: Any) -> None:
        large = {"amount_cents": 100_000, "lines": [{"sku": "lamp", "quantity": 49}, {"sku": "bulb", "quantity": 1}]}
        await service.send("PUT", "/orders/A-2", large)
        run_id = (await service.ask(K1, "A-2", note="ship to the depot")).json()["run_id"]
        async with service.worker():
            ended = await service.ended(run_id)
        findings = ["large_amount", "many_pieces", "has_note"]
        assert ended["outcome"]["result"] == {"decision": "refer", "findings": findings}

    in_service(work)


def test_an_order_is_kept_once(in_service: InService) -> None:
    async def work(service: Any) -> None:
        order = {"amount_cents": 1, "lines": [{"sku": "lamp", "quantity": 1}]}
        answers = [
            await service.send("PUT", "/orders/B-1", sent) for sent in (order, order, order | {"amount_cents": 2})
        ]
        assert [answer.status_code for answer in answers] == [201, 200, 409]

    in_service(work)


def test_a_conflict_names_the_run_only_to_who_may_read_it(in_service: InService) -> None:
    async def work(service: Any) -> None:
        await service.place("A-2")
        run_id = (await service.ask(K1)).json()["run_id"]
        told = {"title": "Conflict", "status": 409, "reason": "submission_key"}
        assert (await service.ask(K1, "A-2")).json() == told | {"run_id": run_id}
        assert (await service.ask(K1, note="other")).json() == told | {"run_id": run_id}
        assert (await service.ask(K1, who="asker")).json() == told
        assert await service.counts() == (1, 1)

    in_service(work)


def test_another_tenants_run_looks_like_an_unknown_one(in_service: InService) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        answers = [
            await service.send("GET", f"/reviews/{run_id}", who="south"),
            await service.send("GET", f"/reviews/{UNKNOWN}", who="south"),
            await service.send("POST", "/reviews/lookup", {"submission_key": K1}, who="south"),
            await service.send("POST", "/reviews/lookup", {"submission_key": K2}, who="south"),
            await service.ask(K1, who="south"),  # the order, too, is another tenant's
        ]
        assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
        assert [_without_id(answer) for answer in answers] == [_without_id(answers[0])] * 5
        await service.place("A-1", who="south")
        assert (await service.ask(K1, who="south")).status_code == 201  # a key is a tenant's own

    in_service(work)


def _without_id(answer: Any) -> list[tuple[str, str]]:
    return [header for header in answer.headers.multi_items() if header[0] != "x-request-id"]


def test_a_refusal_comes_before_existence(in_service: InService) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        for who, status in ((None, 401), ("nobody", 401), ("asker", 403)):
            answers = [
                await service.send("GET", f"/reviews/{run_id}", who=who),
                await service.send("GET", f"/reviews/{UNKNOWN}", who=who),
                await service.send("GET", "/reviews/no-id", who=who),
                await service.send("POST", "/reviews/lookup", {"submission_key": K1}, who=who),
                await service.send("POST", "/reviews/lookup", {"submission_key": "bad"}, who=who),
            ]
            assert {(answer.status_code, answer.content) for answer in answers} == {(status, answers[0].content)}
        sent = {"submission_key": K1, "order": "A-1"}
        bodies = [sent, sent | {"order": "none"}, {"submission_key": "bad", "order": "A-1"}, {}]
        answers = [await service.send("POST", "/reviews", body, who="reader") for body in bodies]
        assert {(answer.status_code, answer.content) for answer in answers} == {(403, answers[0].content)}

    in_service(work)


@pytest.mark.parametrize(
    ("key", "note", "status", "told"),
    [
        ("short", "", 400, {"type_name": "AgentSubmissionKey", "reason": "too_short"}),
        ("k" * 129, "", 400, {"type_name": "AgentSubmissionKey", "reason": "too_long"}),
        ("no spaces allowed here", "", 400, {"type_name": "AgentSubmissionKey", "reason": "invalid_byte"}),
        (K1, "x" * 2_001, 400, {"type_name": "json", "reason": "schema_rejected"}),
        (K1, "x" * (64 * 1024 + 1), 413, {"type_name": "json", "reason": "string_too_large"}),
        (K1, "x" * (128 * 1024), 413, {}),
    ],
)
def test_what_cannot_be_used_is_refused_without_a_row(
    in_service: InService, key: str, note: str, status: int, told: dict[str, str]
) -> None:
    async def work(service: Any) -> None:
        answer = await service.ask(key, note=note)
        assert answer.status_code == status
        assert {"title": answer.json()["title"], "status": status} | told == answer.json()
        assert await service.counts() == (0, 0)

    in_service(work)


def test_a_body_without_sense_is_not_repeated(in_service: InService) -> None:
    async def work(service: Any) -> None:
        answers = [
            await service.send("POST", "/reviews", {"submission_key": K1, "order": "A-1", K1: 1}),
            await service.send("POST", "/reviews", {"submission_key": [K1], "order": "A-1"}),
            await service.send("POST", "/reviews", K1),
        ]
        assert [answer.status_code for answer in answers] == [400, 400, 400]
        assert not [answer for answer in answers if K1 in answer.text]

    in_service(work)


def test_an_order_that_is_too_old_is_not_reviewed(in_service: InService) -> None:
    async def work(service: Any) -> None:
        await service.execute("UPDATE public.orders SET placed_at = placed_at - interval '2 days'")
        refused = await service.ask(K1)
        assert refused.json() == {"title": "Conflict", "status": 409, "reason": "deadline"}
        assert await service.counts() == (0, 0)

    in_service(work)


def test_what_the_service_cannot_insert_takes_the_run_along(in_service: InService) -> None:
    async def work(service: Any) -> None:
        assert (await service.ask(K1)).status_code == 201
        refused = await service.ask(K2)  # the order is under review already
        assert (refused.status_code, refused.json()["reason"]) == (409, "under_review")
        assert await service.counts() == (1, 1)
        assert (await service.send("POST", "/reviews/lookup", {"submission_key": K2})).status_code == 404
        await service.place("A-2")
        assert (await service.ask(K2, "A-2")).status_code == 201  # the key was left free

    in_service(work)


def test_a_withdrawal_is_asked_for_once_and_ends_the_review(in_service: InService) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        place = f"/reviews/{run_id}/withdrawals"
        first, again = [await service.send("PUT", f"{place}/{EVENT}", {"reason": "withdrawn"}) for _ in range(2)]
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json() == again.json()
        assert first.json()["status"] == "cancellation_requested"
        assert await service.scalar("SELECT withdrawn_by FROM public.order_reviews") == "north-desk"
        others = [
            await service.send("PUT", f"{place}/{EVENT}", {"reason": "duplicate"}),  # the event with another content
            await service.send("PUT", f"{place}/{UNKNOWN}", {"reason": "withdrawn"}),  # another event
        ]
        told = {"title": "Conflict", "status": 409, "reason": "conflict"}
        assert [answer.json() for answer in others] == [told, told]
        async with service.worker():
            ended = await service.ended(run_id)
        assert ended["outcome"] == {"kind": "cancelled", "result": None, "failure": "order.withdrawn"}
        late = await service.send("PUT", f"{place}/{EVENT}", {"reason": "withdrawn"})
        assert (late.status_code, late.json()) == (200, ended)

    in_service(work)


def test_a_withdrawal_that_comes_too_late_or_from_elsewhere_changes_nothing(in_service: InService) -> None:
    async def work(service: Any) -> None:
        run_id = (await service.ask(K1)).json()["run_id"]
        sent = {"reason": "withdrawn"}
        foreign = await service.send("PUT", f"/reviews/{run_id}/withdrawals/{EVENT}", sent, who="south")
        unknown = await service.send("PUT", f"/reviews/{UNKNOWN}/withdrawals/{EVENT}", sent, who="south")
        assert (foreign.status_code, foreign.content) == (404, unknown.content)
        refused = await service.send("PUT", f"/reviews/{run_id}/withdrawals/{EVENT}", sent, who="reader")
        assert refused.status_code == 403
        async with service.worker():
            await service.ended(run_id)
        late = await service.send("PUT", f"/reviews/{run_id}/withdrawals/{EVENT}", sent)
        assert (late.status_code, late.json()["reason"]) == (409, "terminal")
        assert await service.scalar("SELECT withdrawn_by FROM public.order_reviews") is None

    in_service(work)
