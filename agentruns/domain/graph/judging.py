"""Verdicts of a graph's schemas, told apart from the lack of one."""

from __future__ import annotations

from enum import Enum, unique

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.identity import SchemaReference
from agentruns.errors import ExecutableGraphUnavailableError, SchemaRejectedError, SchemaUnavailableError


@unique
class Verdict(Enum):
    """Say what a schema made of a value. ``FAILED``: its validator gave up on exactly this value."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"


def judge(graph: ExecutableGraph, reference: SchemaReference, value: BoundedJson) -> Verdict:
    """Ask a schema about a value. What the validator raised may lead to private data and stays here.

    Raises:
        ExecutableGraphUnavailableError: ``schema``: it is not installed in this process.
    """
    try:
        graph.schemas.validate(reference, value)
    except SchemaRejectedError:
        return Verdict.REJECTED
    except SchemaUnavailableError as error:
        if error.reason == "not_installed":
            raise unavailable(graph, "schema") from error
        return Verdict.FAILED
    return Verdict.ACCEPTED


def unavailable(graph: ExecutableGraph, reason: str) -> ExecutableGraphUnavailableError:
    """Say that this process cannot work with the graph now."""
    return ExecutableGraphUnavailableError(reason=reason, graph=graph.digest)
