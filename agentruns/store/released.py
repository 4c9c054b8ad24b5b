"""What was released, as the package's manifest says: the revisions, and the catalogue that the whole chain makes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from attrs import frozen

#: Kind of object, name, definition.
Catalogue = Mapping[str, Mapping[str, str]]

#: Stands for the schema in a released definition.
PLACEHOLDER: Final = "{schema}"


@frozen(kw_only=True)
class ReleasedRevision:
    """Hold what the manifest says of one revision.

    Attributes:
        checksum: SHA-256 of the revision's file with LF line ends.
    """

    number: int
    revision: str
    checksum: bytes


@cache
def released_revisions() -> tuple[ReleasedRevision, ...]:
    """Read the revisions of this release, oldest first."""
    return tuple(
        ReleasedRevision(number=entry["number"], revision=entry["revision"], checksum=bytes.fromhex(entry["sha256"]))
        for entry in _manifest()["revisions"]
    )


@cache
def released_catalogue(quoted_schema: str) -> Catalogue:
    """Give the catalogue that a migrated schema of that name has, the name quoted as the server quotes it."""
    catalogue: Catalogue = _manifest()["catalogue"]
    return {
        kind: {name: definition.replace(PLACEHOLDER, quoted_schema) for name, definition in objects.items()}
        for kind, objects in catalogue.items()
    }


@cache
def _manifest() -> Mapping[str, Any]:
    manifest: Mapping[str, Any] = json.loads(files("agentruns").joinpath("migrations/manifest.json").read_bytes())
    return manifest
