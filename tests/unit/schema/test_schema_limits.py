from __future__ import annotations

import pytest

from agentruns.domain.schema import JsonSchemaRegistryLimits
from agentruns.errors import InvalidOptionError


def test_defaults() -> None:
    limits = JsonSchemaRegistryLimits()
    assert limits.documents == 1_024
    assert limits.document_bytes == 2_097_152
    assert limits.total_bytes == 67_108_864
    assert limits.verdicts == 65_536


def test_hard_maxima_are_accepted() -> None:
    limits = JsonSchemaRegistryLimits(
        documents=4_096, document_bytes=8_388_608, total_bytes=268_435_456, verdicts=1_048_576
    )
    assert limits.verdicts == 1_048_576


def test_zero_verdicts_are_legal() -> None:
    assert JsonSchemaRegistryLimits(verdicts=0).verdicts == 0


@pytest.mark.parametrize(
    ("options", "option", "reason", "bound"),
    [
        ({"documents": 0, "document_bytes": 0}, "documents", "out_of_range", "at least 1"),
        ({"documents": -1}, "documents", "out_of_range", "at least 1"),
        ({"document_bytes": 0, "total_bytes": 0}, "document_bytes", "out_of_range", "at least 1"),
        ({"total_bytes": 0}, "total_bytes", "out_of_range", "at least 1"),
        ({"verdicts": -1}, "verdicts", "out_of_range", "at least 0"),
        (
            {"document_bytes": 10, "total_bytes": 9, "documents": 5_000},
            "total_bytes",
            "total_below_document",
            "at least document_bytes, 10",
        ),
        ({"documents": 4_097}, "documents", "out_of_range", "at most 4096"),
        ({"document_bytes": 8_388_609}, "document_bytes", "out_of_range", "at most 8388608"),
        ({"total_bytes": 268_435_457}, "total_bytes", "out_of_range", "at most 268435456"),
        ({"verdicts": 1_048_577}, "verdicts", "out_of_range", "at most 1048576"),
        ({"documents": True}, "documents", "wrong_type", "an integer"),
        ({"documents": 1.0}, "documents", "wrong_type", "an integer"),
        ({"verdicts": float("nan")}, "verdicts", "wrong_type", "an integer"),
        ({"verdicts": float("inf")}, "verdicts", "wrong_type", "an integer"),
    ],
)
def test_refused_in_order(options: dict[str, int], option: str, reason: str, bound: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        JsonSchemaRegistryLimits(**options)
    assert (caught.value.option, caught.value.reason, caught.value.bound) == (option, reason, bound)
