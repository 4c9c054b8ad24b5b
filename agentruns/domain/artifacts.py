"""The artifacts of a result: bytes kept elsewhere, named in an order that is the agent's."""

from __future__ import annotations

from typing import TypeAlias

from agentruns.domain.identity import ArtifactReference
from agentruns.domain.numbers import ByteCount
from agentruns.errors import InvalidValueError

MAX_ARTIFACTS = 64

#: At most 64, unique by tenant and artifact id.
AgentArtifacts: TypeAlias = tuple[ArtifactReference, ...]


def check_artifacts(type_name: str, artifacts: AgentArtifacts) -> None:
    """Refuse artifacts that are too many, repeat one or have no size together.

    Raises:
        InvalidValueError: ``too_many_artifacts``, ``duplicate_artifact`` or ``overflow``.
    """
    if len(artifacts) > MAX_ARTIFACTS:
        raise InvalidValueError(type_name=type_name, reason="too_many_artifacts")
    if len({(each.tenant_id, each.artifact_id) for each in artifacts}) < len(artifacts):
        raise InvalidValueError(type_name=type_name, reason="duplicate_artifact")
    total_size(artifacts)


def total_size(artifacts: AgentArtifacts) -> ByteCount:
    """Add up the sizes.

    Raises:
        InvalidValueError: ``overflow``.
    """
    total = ByteCount(0)
    for each in artifacts:
        total = total.plus(each.size)
    return total
