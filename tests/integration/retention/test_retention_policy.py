"""A policy that breaks its own promise cannot be made, and nothing is removed that was not said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from agentruns.errors import InvalidOptionError
from agentruns.operations.retention import RetentionPolicy, plan_retention, remove_runs, retention_receipts
from agentruns.testing.samples import TENANT

HOUR, DAY, MICROSECOND = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
KEEPS = ("keep_succeeded", "keep_failed", "keep_cancelled")


def policy(**changes: Any) -> RetentionPolicy:
    return RetentionPolicy(**{**dict.fromkeys(KEEPS, 7 * DAY), **changes})


def test_the_guarantee_is_seven_days_unless_said_otherwise() -> None:
    assert policy().retry_guarantee == 7 * DAY
    assert policy().include_quarantined is False


@pytest.mark.parametrize("keep", KEEPS)
def test_no_keep_is_below_the_guarantee(keep: str) -> None:
    for guarantee in (HOUR, 7 * DAY):
        assert getattr(policy(retry_guarantee=guarantee, **{keep: guarantee}), keep) == guarantee
        with pytest.raises(InvalidOptionError) as refused:
            policy(retry_guarantee=guarantee, **{keep: guarantee - MICROSECOND})
        assert refused.value.option == keep


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retry_guarantee", HOUR - MICROSECOND),
        ("retry_guarantee", 7 * DAY + MICROSECOND),
        ("keep_failed", timedelta.max),
        ("keep_failed", 36_525 * DAY + MICROSECOND),
        ("keep_failed", 7),
        ("keep_failed", None),
        ("include_quarantined", "no"),
        ("include_quarantined", 1),
    ],
)
def test_what_breaks_a_bound_is_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        policy(**{option: value})
    expected = "keep_succeeded" if (option, value) == ("retry_guarantee", 7 * DAY + MICROSECOND) else option
    assert refused.value.option == expected


def test_a_keep_below_the_guarantee_says_what_it_needs() -> None:
    with pytest.raises(InvalidOptionError) as refused:
        policy(keep_failed=3 * DAY)
    assert refused.value.value == "3 days, 0:00:00"
    assert refused.value.bound == (
        "7 days, 0:00:00..36525 days, 0:00:00, from the retry guarantee up; "
        "for less make that shorter: retry_guarantee, or --retry-guarantee"
    )
    with pytest.raises(InvalidOptionError) as too_long:
        policy(keep_failed=36_526 * DAY)
    assert too_long.value.bound == refused.value.bound


@pytest.mark.parametrize("missing", KEEPS)
def test_every_keep_has_to_be_said(missing: str) -> None:
    said: dict[str, Any] = {keep: 7 * DAY for keep in KEEPS if keep != missing}
    with pytest.raises(TypeError, match=missing):
        RetentionPolicy(**said)


def test_the_canonical_form_is_fixed() -> None:
    made = policy(keep_failed=90 * DAY, retry_guarantee=DAY, include_quarantined=True)
    assert made.canonical == (
        b'{"include_quarantined":true,"keep_cancelled":"604800000000","keep_failed":"7776000000000",'
        b'"keep_succeeded":"604800000000","retry_guarantee":"86400000000"}'
    )


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"tenant_id": "tenant-a"}, "pass tenant_id as TenantId, not str"),
        ({"tenant_id": ["tenant-a"]}, "pass tenant_id as TenantId, not list"),
        ({"tenant_id": TENANT}, "pass connection as Connection, not object"),
        ({"all_tenants": True, "policy": "secret"}, "pass policy as RetentionPolicy, not str"),
    ],
)
def test_what_is_of_another_type_is_refused_at_the_call(named: dict[str, Any], sentence: str) -> None:
    for call in (remove_runs, plan_retention):
        given: dict[str, Any] = {"policy": policy(), **named}
        with pytest.raises(TypeError) as refused:
            call(cast("Any", object()), **given)
        assert str(refused.value) == sentence


def test_receipts_of_what_is_no_tenant_are_refused_at_the_call() -> None:
    for tenant_id, sentence in (
        ("tenant-a", "pass tenant_id as TenantId, not str"),
        (TENANT, "pass connection as Connection, not object"),
    ):
        given: Any = tenant_id
        with pytest.raises(TypeError) as refused:
            retention_receipts(cast("Any", object()), given)
        assert str(refused.value) == sentence


@pytest.mark.parametrize("call", [remove_runs, plan_retention])
@pytest.mark.parametrize("named", [{}, {"tenant_id": TENANT, "all_tenants": True}])
def test_Q4_without_a_tenant_everything_has_to_be_said(call: Any, named: dict[str, Any]) -> None:
    """It is refused at the call, before anybody iterates or connects."""
    with pytest.raises(InvalidOptionError) as refused:
        call(None, policy(), **named)
    assert refused.value.option == "tenant_id"
