"""What a person decides keeps who and why in its own bytes, and bytes that say nothing of it stay as they were."""

from __future__ import annotations

import pytest

from agentruns.domain.digests import DigestPurpose, digest_body
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.waits import WaitResolver
from agentruns.domain.wire import decode, encode
from agentruns.errors import InvalidValueError
from agentruns.testing import samples

PRINCIPAL = b'{"issuer":"https://issuer.example/","subject":"somebody"}'


def authority(reason: str = "a duplicate") -> OperatorAuthority:
    return OperatorAuthority(principal=samples.principal(), reason=reason)


def test_a_request_without_authority_has_the_bytes_that_it_always_had() -> None:
    request = CancellationRequest(failure=samples.cancellation())
    body = b'{"failure":' + encode(samples.cancellation()) + b"}"
    assert request.canonical == body
    assert request.digest == digest_body(DigestPurpose.CANCELLATION_REQUEST, body)
    assert decode(body, CancellationRequest) == request


def test_a_request_with_authority_carries_it_in_body_and_digest() -> None:
    request = CancellationRequest(failure=samples.cancellation(), authority=authority())
    assert request.canonical == (
        b'{"authority":{"principal":'
        + PRINCIPAL
        + b',"reason":"a duplicate"},"failure":'
        + encode(samples.cancellation())
        + b"}"
    )
    assert decode(request.canonical, CancellationRequest) == request
    others = (None, authority("another"), OperatorAuthority(principal=samples.principal("else"), reason="a duplicate"))
    for other in others:
        assert CancellationRequest(failure=samples.cancellation(), authority=other).digest != request.digest


def test_a_resolver_keeps_its_reason_only_where_there_is_one() -> None:
    without = WaitResolver(principal=samples.principal(), scopes=ScopeSet.of("a"))
    assert encode(without) == b'{"principal":' + PRINCIPAL + b',"scopes":["a"]}'
    reasoned = WaitResolver(principal=samples.principal(), scopes=ScopeSet.of("a"), reason="seen")
    assert encode(reasoned) == b'{"principal":' + PRINCIPAL + b',"reason":"seen","scopes":["a"]}'
    assert decode(encode(reasoned), WaitResolver) == reasoned


@pytest.mark.parametrize(
    ("reason", "why"),
    [("", "too_short"), ("x" * 1_025, "too_long"), ("two\nlines", "invalid_format"), (" x", "invalid_format")],
)
def test_a_reason_is_text_on_one_line(reason: str, why: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        authority(reason)
    assert (refused.value.type_name, refused.value.reason) == ("OperatorAuthority", why)
    with pytest.raises(InvalidValueError) as refused:
        WaitResolver(principal=samples.principal(), scopes=ScopeSet.of(), reason=reason)
    assert (refused.value.type_name, refused.value.reason) == ("WaitResolver", why)


def test_no_repr_shows_who_or_why() -> None:
    private = OperatorAuthority(principal=samples.principal("planted"), reason="planted")
    request = CancellationRequest(failure=samples.cancellation(), authority=private)
    resolver = WaitResolver(principal=samples.principal("planted"), scopes=ScopeSet.of(), reason="planted")
    assert "planted" not in repr(request) + repr(resolver)
