"""A reader gives what decoding the bytes would give, whatever it has read before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.admission_reader import MAXIMUM_FRONTS, AdmissionReader
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.scalars import TenantId
from agentruns.domain.wire import decode
from agentruns.errors import InvalidValueError
from agentruns.testing import samples

TENANT = TenantId("tenant")


def body(
    number: int = 1,
    *,
    agent: str = "one",
    tenant_id: TenantId = TENANT,
    input: JsonTree = None,  # noqa: A002  # the member's name
    evidence: JsonTree = None,
    limits: BudgetLimits | None = None,
) -> bytes:
    return samples.admission_request(
        number,
        tenant_id=tenant_id,
        descriptor=samples.agent(name=agent),
        request=samples.agent_request(input={"number": number} if input is None else input, budget_limits=limits),
        granted=samples.authority(evidence=evidence),
    ).intent.canonical


def test_a_second_run_of_an_agent_shares_all_but_ids_and_request() -> None:
    reader = AdmissionReader()
    first, second = reader.read(body(1)), reader.read(data := body(2))
    assert second == decode(data, AgentAdmissionIntent)
    assert second.canonical == data
    assert second.descriptor is first.descriptor


@pytest.mark.parametrize("input", [{"é": [1.5, '\\ " \n']}, [[]], "text", 0, {"input_schema": {}, "thread_id": "x"}])
def test_ids_tenant_and_input_are_those_of_the_bytes(input: JsonTree) -> None:  # noqa: A002  # the member's name
    reader = AdmissionReader()
    reader.read(body(1))
    read = reader.read(data := body(2, tenant_id=TenantId("another"), input=input))
    assert read == decode(data, AgentAdmissionIntent)
    assert (read.canonical, read.digest) == (data, decode(data, AgentAdmissionIntent).digest)
    assert read.request.input.depth == decode(data, AgentAdmissionIntent).request.input.depth


def test_what_else_differs_behind_the_front_is_decoded_whole() -> None:
    reader = AdmissionReader()
    first = reader.read(body(1, limits=BudgetLimits.of(tool_calls=5_000)))
    second = reader.read(data := body(2, limits=BudgetLimits.of(tool_calls=6_000)))
    assert second.budget == first.budget
    assert second == decode(data, AgentAdmissionIntent)


def test_an_input_beyond_the_budget_is_refused() -> None:
    reader = AdmissionReader()
    limits = BudgetLimits.of(input_bytes=16)
    reader.read(body(1, limits=limits))
    data = body(2, limits=limits).replace(b'{"number":2}', b'{"more":"than that","number":2}')
    with pytest.raises(InvalidValueError) as refused:
        reader.read(data)
    assert refused.value.reason == "input_too_large"


def test_evidence_that_names_a_provenance_hides_no_front() -> None:
    reader = AdmissionReader()
    for number in (1, 2):
        data = body(number, evidence={"other": 1, "provenance": {"agent": 1}})
        assert reader.read(data) == decode(data, AgentAdmissionIntent)
    assert not reader._fronts


def test_another_agent_is_decoded_whole() -> None:
    reader = AdmissionReader()
    reader.read(body(1))
    assert reader.read(data := body(1, agent="two")) == decode(data, AgentAdmissionIntent)


@pytest.mark.parametrize(
    ("found", "put"),
    [(b'"number":2', b'"number":2 '), (b'"request":{', b'"request":{"other":1,'), (b'"run_id":"0', b'"run_id":"x')],
)
def test_bytes_behind_a_known_front_are_refused_as_decoding_refuses_them(found: bytes, put: bytes) -> None:
    reader = AdmissionReader()
    reader.read(body(1))
    data = body(2).replace(found, put)
    with pytest.raises(InvalidValueError) as expected:
        decode(data, AgentAdmissionIntent)
    with pytest.raises(InvalidValueError) as refused:
        reader.read(data)
    assert (type(refused.value), str(refused.value)) == (type(expected.value), str(expected.value))


def what_comes_of(read: Callable[[bytes], AgentAdmissionIntent], data: bytes) -> AgentAdmissionIntent | tuple[str, str]:
    try:
        return read(data)
    except InvalidValueError as error:
        return type(error).__name__, str(error)


def test_no_other_byte_behind_a_known_front_is_passed_over() -> None:
    data = body(2)
    for place in range(data.index(b'"provenance":'), len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        reader = AdmissionReader()
        reader.learn(decode(body(1), AgentAdmissionIntent))
        expected = what_comes_of(lambda each: decode(each, AgentAdmissionIntent), changed)
        assert what_comes_of(reader.read, changed) == expected


def test_fronts_are_bounded() -> None:
    reader = AdmissionReader()
    for number in range(MAXIMUM_FRONTS + 1):
        reader.read(body(agent=f"agent-{number}"))
    assert len(reader._fronts) == MAXIMUM_FRONTS
