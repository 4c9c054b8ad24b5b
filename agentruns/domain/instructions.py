"""The instructions that a model gets before anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from attrs import field, frozen

from agentruns.domain.identity import ArtifactReference, CapabilityIdentity, Modality
from agentruns.domain.members import check_members
from agentruns.domain.texts import check_text, utf8_size
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

_MIB = 1024 * 1024

MAX_INSTRUCTIONS = 32
MAX_TEXT_BYTES = _MIB
MAX_TOTAL_BYTES = 8 * _MIB


@frozen(kw_only=True)
class InstructionText:
    """Carry an instruction's text, at most 1 MiB."""

    kind: ClassVar[str] = "text"

    text: str = field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_text("InstructionText", self.text, shortest=0, longest=MAX_TEXT_BYTES)

    @property
    def size(self) -> int:
        """Count its UTF-8 bytes."""
        return utf8_size(self.text)


@frozen(kw_only=True)
class InstructionArtifact:
    """Point to an instruction that is kept elsewhere; its modality is ``text``."""

    kind: ClassVar[str] = "artifact"

    artifact: ArtifactReference

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.artifact.modality is not Modality.TEXT:
            raise InvalidValueError(type_name="InstructionArtifact", reason="wrong_modality")

    @property
    def size(self) -> int:
        """Count the bytes of the artifact."""
        return int(self.artifact.size)


InstructionContent: TypeAlias = InstructionText | InstructionArtifact

register_union(
    InstructionContent, tag="kind", variants={each.kind: each for each in (InstructionText, InstructionArtifact)}
)


@frozen(kw_only=True)
class AgentInstruction:
    """Give a model one instruction.

    Attributes:
        identity: whose instruction it is; unique within an agent.
        content: the text, or where it is kept.
    """

    identity: CapabilityIdentity
    content: InstructionContent

    def __attrs_post_init__(self) -> None:
        check_members(self)


def check_instructions(type_name: str, instructions: Sequence[AgentInstruction]) -> None:
    """Refuse instructions that are too many, repeat an identity or are too large together.

    Raises:
        InvalidValueError: ``too_many_instructions``, ``duplicate_instruction`` or ``instructions_too_large``.
    """
    identities = [each.identity for each in instructions]
    if len(identities) > MAX_INSTRUCTIONS:
        raise InvalidValueError(type_name=type_name, reason="too_many_instructions")
    if len(set(identities)) < len(identities):
        raise InvalidValueError(type_name=type_name, reason="duplicate_instruction")
    if sum(each.content.size for each in instructions) > MAX_TOTAL_BYTES:
        raise InvalidValueError(type_name=type_name, reason="instructions_too_large")
