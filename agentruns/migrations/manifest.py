"""Keep what was released: the checksum of each revision, and the catalogue that the whole chain makes."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from agentruns.errors import SchemaVerificationError
from agentruns.migrations.environment import LOCATION, scripts
from agentruns.migrations.frozen import file_checksum, released
from agentruns.store.released import PLACEHOLDER, Catalogue

#: The schema from which a manifest is made: its name occurs in no definition but where the schema is meant.
SCHEMA: Final = "agentruns"
#: The modules that revisions run on; they are as frozen as the revisions themselves.
FROZEN: Final = ("frozen.py", "frozen_views.py", "frozen_view_columns.py")


def check_files(schema: str) -> None:
    """Refuse to run what was not released, before any SQL; a file that cannot be read is not checked.

    Raises:
        SchemaVerificationError: ``tampered``.
    """
    manifest = released()
    versions = _folder(LOCATION.rstrip(":"))
    wanted = {versions / entry["file"]: entry["sha256"] for entry in manifest["revisions"]}
    wanted |= {_folder(__package__) / name: sha256 for name, sha256 in manifest["modules"].items()}
    for path, checksum in wanted.items():
        if path.is_file() and (found := file_checksum(path)) != checksum:
            raise SchemaVerificationError(
                reason="tampered", schema=schema, found=f"{path.name} {found}", wanted=checksum
            )


def render(catalogue: Catalogue) -> str:
    """Write the manifest of the revisions that are installed.

    Args:
        catalogue: what was read from a schema named :data:`SCHEMA` that they made, empty while there is none.
    """
    located = {
        kind: {name: text.replace(f"{SCHEMA}.", f"{PLACEHOLDER}.") for name, text in sorted(objects.items())}
        if kind != "function"
        else dict(objects)
        for kind, objects in sorted(catalogue.items())
    }
    modules = {name: file_checksum(_folder(__package__) / name) for name in FROZEN}
    manifest = {"revisions": _revisions(), "modules": modules, "catalogue": located}
    return json.dumps(manifest, indent=1) + "\n"


def _revisions() -> list[dict[str, Any]]:
    chain = reversed(list(scripts().walk_revisions()))
    return [
        {
            "number": script.module.THIS.number,
            "revision": script.revision,
            "file": Path(script.path).name,
            "sha256": file_checksum(Path(script.path)),
            "oldest_code": script.module.THIS.oldest_code,
        }
        for script in chain
    ]


def _folder(package: str) -> Path:
    return Path(str(files(package)))
