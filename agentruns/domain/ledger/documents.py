"""The schema documents that cover the events of a run; no application types one of their digests."""

from __future__ import annotations

from typing import Final

from agentruns.domain.digests import Digest
from agentruns.domain.identity import SchemaReference
from agentruns.domain.scalars import Version
from agentruns.domain.uris import SchemaId

_RUNTIME = "https://stknot.com/schemas/runtime/"
_OWN = "https://agentruns.invalid/schemas/"


def _document(location: str, name: str, digits: str) -> SchemaReference:
    return SchemaReference(
        id=SchemaId(f"{location}{name}/1.0.0"), version=Version("1.0.0"), digest=Digest.parse(f"sha256:{digits}")
    )


ADMISSION_EVENT: Final = _document(
    _RUNTIME, "agent-admission-event", "3a37f80e5a235c35a8b477874aeec3f3078fed4031f1fddc846158d16290880b"
)
DRIVER_EVENT: Final = _document(
    _RUNTIME, "graph-driver-event", "1191b2847f97fa719e42b0e687e87c2acfa5c36b944952a043ec15c1dbc83d1e"
)
LIFECYCLE_EVENT: Final = _document(
    _RUNTIME, "graph-lifecycle-event", "abea4de93320c9e08a4c89af29c0c04955392f2872ef7aba9cf3fb10813fd3ae"
)
CANCELLATION_EVENT: Final = _document(
    _RUNTIME, "agent-cancellation-event", "b71fce8ba7eddf7508f9a29b22b5944c771611cb3a5159dbc027950a62fa2bcf"
)
INVOCATION_EVENT: Final = _document(
    _OWN, "invocation-execution-event", "f048e5cc5eedfc07170471fe1120ce8ce0099464baec98ea2405f468496baba8"
)

EVENT_DOCUMENTS: Final = (ADMISSION_EVENT, DRIVER_EVENT, LIFECYCLE_EVENT, CANCELLATION_EVENT, INVOCATION_EVENT)
