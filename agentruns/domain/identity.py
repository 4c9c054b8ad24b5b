"""Identities: they say which, never who. A version of an identity has one content for ever."""

from __future__ import annotations

import re
from enum import Enum, unique

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import ArtifactId, RunId
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.numbers import ByteCount
from agentruns.domain.scalars import CapabilityName, SubjectId, TenantId, Version, refuse
from agentruns.domain.uris import IssuerId, SchemaId

#: RFC 6838 section 4.2, in lowercase and without parameters.
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_MEDIA_TYPE_LENGTH = 127


@frozen(kw_only=True, order=True)
class PrincipalIdentity:
    """Say which person or service, as its issuer calls it. Ordered by issuer, then subject.

    Attributes:
        issuer: who issued the subject.
        subject: private, not shown by ``repr``.
    """

    issuer: IssuerId
    subject: SubjectId

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True, order=True)
class CapabilityReference:
    """Name a capability of some owner, in a version.

    Attributes:
        name: within what the owner owns.
        version: of the content.
    """

    name: CapabilityName
    version: Version

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True, order=True)
class CapabilityIdentity(KeptBytes):
    """Say which agent, model, tool, graph, reducer, policy or instruction. Ordered by owner, name, version.

    Attributes:
        owner: who publishes it.
        capability: its name and version.
    """

    owner: PrincipalIdentity
    capability: CapabilityReference

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class SchemaReference:
    """Pin a schema document. It is matched as the exact triple.

    Attributes:
        id: the document's ``$id``; an identity, never fetched.
        version: of the document.
        digest: plain digest of the document.
    """

    id: SchemaId
    version: Version
    digest: Digest

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class GraphReference(KeptBytes):
    """Pin a graph in an admission; a checkpoint pins its digest.

    Attributes:
        identity: which graph.
        definition_digest: plain digest of its definition.
        state_schema: of the states of its runs.
    """

    identity: CapabilityIdentity
    definition_digest: Digest
    state_schema: SchemaReference

    def __attrs_post_init__(self) -> None:
        check_members(self)


@unique
class Modality(Enum):
    """Say what sort of content it is."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"
    DATA = "data"


@frozen(kw_only=True)
class ArtifactReference:
    """Name bytes that are kept elsewhere. It grants no access to them.

    Attributes:
        tenant_id: of the run that made it.
        run_id: the run that made it.
        artifact_id: of the bytes.
        media_type: lowercase ``type/subtype`` without parameters, 3..127 bytes.
        modality: what sort of content it is.
        size: of the bytes.
        digest: plain digest of the bytes.
        principal: who it was made for.
        capability: what made it.
    """

    tenant_id: TenantId
    run_id: RunId
    artifact_id: ArtifactId
    media_type: str
    modality: Modality
    size: ByteCount
    digest: Digest
    principal: PrincipalIdentity
    capability: CapabilityIdentity

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if len(self.media_type) > _MEDIA_TYPE_LENGTH or not _MEDIA_TYPE.fullmatch(self.media_type):
            raise refuse(self, "invalid_media_type")
