"""The details that the library's own failures carry."""

from __future__ import annotations

from typing import Final

from agentruns.domain.digests import Digest
from agentruns.domain.exception_name import exception_name
from agentruns.domain.failure import FailureDetails
from agentruns.domain.identity import SchemaReference
from agentruns.domain.scalars import Version
from agentruns.domain.uris import SchemaId

#: Of every failure that the graph's runtime declares: either a reason or the type of an exception.
GRAPH_FAILURE_DETAILS: Final = SchemaReference(
    id=SchemaId("https://agentruns.invalid/schemas/graph-failure-details/1.0.0"),
    version=Version("1.0.0"),
    digest=Digest.parse("sha256:df6825086721adadd81997e11f37c3d45dc5e5261768118ee79bbd109071af32"),
)


def reason_details(reason: str) -> FailureDetails:
    """Carry one of the closed reasons, in lower snake case."""
    return FailureDetails.of(GRAPH_FAILURE_DETAILS, {"reason": reason})


def exception_details(error: BaseException) -> FailureDetails:
    """Carry the qualified name of an exception's class and nothing that it holds."""
    return FailureDetails.of(GRAPH_FAILURE_DETAILS, {"exception_type": exception_name(error)})
