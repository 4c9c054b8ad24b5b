"""Where the embedded server keeps its files, and how they are made private to its account."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from agentruns.errors import DeploymentError
from agentruns.operations.embedded.account import Account

#: Root's place for data directories and for copies of binaries.
ROOT_STATE: Final = Path("/var/lib/agentruns")
DATA_DIRECTORY_VARIABLE: Final = "AGENTRUNS_DATA_DIR"

#: The kernel takes 107 bytes for a socket's path; PostgreSQL appends ``/.s.PGSQL.<port>``.
LONGEST_SOCKET_PATH: Final = 100
_SOCKET_NAME: Final = "/.s.PGSQL.65535"
PUBLIC_DIRECTORY: Final = 0o755
_PRIVATE_DIRECTORY: Final = 0o700
_PRIVATE_FILE: Final = 0o600


@frozen(kw_only=True)
class Home:
    """Name the files inside one data directory.

    Attributes:
        path: the data directory, absolute. It belongs to the server's account and has mode 0700.
    """

    path: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own directory."""
        return self.path / "cluster"

    @property
    def settings(self) -> Path:
        """Settings of ours, read at each start."""
        return self.cluster / "agentruns.conf"

    @property
    def start_lock(self) -> Path:
        """Held while a server is started or stopped."""
        return self.path / "start.lock"

    @property
    def handle_lock(self) -> Path:
        """Shared by all who use the server."""
        return self.path / "handles.lock"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.path / "server.log"

    @property
    def password(self) -> Path:
        """The password for connections over TCP."""
        return self.path / "password"

    @property
    def kept_mark(self) -> Path:
        """Stands for a server that goes on after its last handle has closed."""
        return self.path / "kept"

    @property
    def not_durable_mark(self) -> Path:
        """Stands for data that may be lost or damaged by a crash of the machine."""
        return self.path / "not-durable"

    @property
    def socket_note(self) -> Path:
        """Says which directory of sockets outside of the data directory belongs to this server."""
        return self.path / "socket-directory"

    def version(self) -> int | None:
        """Read the major version that made the data; ``None`` before there are any."""
        for directory in (self.cluster, self.path):
            try:
                return int((directory / "PG_VERSION").read_text(encoding="ascii").split(".")[0])
            except FileNotFoundError:
                continue
            except ValueError:
                return 0
        return None


def home_of(data_dir: str | os.PathLike[str] | None, *, major: int) -> Home:
    """Find the data directory: as told, as ``AGENTRUNS_DATA_DIR`` says, else the user's own, one per major version."""
    told = data_dir or os.environ.get(DATA_DIRECTORY_VARIABLE) or _default(major)
    return Home(path=Path(os.path.realpath(Path(told).expanduser())))


def _default(major: int) -> Path:
    if os.geteuid() == 0:
        return ROOT_STATE / "postgresql" / str(major)
    import platformdirs  # noqa: PLC0415 - only a plain user without a directory needs it

    return platformdirs.user_data_path("agentruns") / "postgresql" / str(major)


@contextmanager
def access_to(home: Home) -> Iterator[None]:
    """Turn what the file system refuses inside the block into an error that names the data directory."""
    try:
        yield
    except OSError as error:
        detail = f"cannot use {home.path}: {os.strerror(error.errno or 0)}"
        raise DeploymentError(reason="embedded_failed", detail=detail) from error


def make_parents(path: Path) -> None:
    """Make the directories above a path that are missing, open to all whatever the umask; others stay as they are."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            parent.chmod(PUBLIC_DIRECTORY)


def prepare(home: Home, account: Account) -> None:
    """Make the data directory, private to the account; its parents stay as they are.

    Raises:
        DeploymentError: the directory holds something else, belongs to somebody else or cannot be reached.
    """
    with access_to(home):
        is_new = not home.path.exists()
        make_parents(home.path)
        home.path.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        _claim(home, account)
    if account.is_other and not account.can_enter(home.path):
        if is_new:
            home.path.rmdir()
        detail = f"account {account.name} cannot reach {home.path}: choose another data directory"
        raise DeploymentError(reason="embedded_failed", detail=detail)


def _claim(home: Home, account: Account) -> None:
    found = home.path.stat()
    is_ours = home.start_lock.exists()
    if not is_ours and any(home.path.iterdir()):
        detail = f"{home.path} holds other files: choose an empty data directory"
        raise DeploymentError(reason="embedded_failed", detail=detail)
    if found.st_uid not in (account.uid, os.geteuid()):
        raise DeploymentError(reason="embedded_failed", detail=f"{home.path} belongs to another account")
    if found.st_uid != account.uid:
        os.chown(home.path, account.uid, account.gid)
    if stat.S_IMODE(found.st_mode) != _PRIVATE_DIRECTORY:
        home.path.chmod(_PRIVATE_DIRECTORY)


def open_private(path: Path, account: Account, flags: int) -> int:
    """Open a file of the account's own, never through a link, and hand back its descriptor."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE_FILE)
    found = os.fstat(descriptor)
    if found.st_uid != account.uid and found.st_nlink == 1:
        os.fchown(descriptor, account.uid, account.gid)
    return descriptor


def write_private(path: Path, text: str, account: Account) -> None:
    """Replace a file as a whole; only the account reads it."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)
    with os.fdopen(open_private(scratch, account, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)


def socket_directory(home: Home, account: Account) -> Path:
    """Make the directory of the server's socket, inside the data directory unless its path is too long for a socket."""
    inside = home.path / "socket"
    if len(os.fsencode(inside)) + len(_SOCKET_NAME) <= LONGEST_SOCKET_PATH:
        inside.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)
        os.chown(inside, account.uid, account.gid, follow_symlinks=False)
        return inside
    return _noted(home, account) or _short(home, account)


def _noted(home: Home, account: Account) -> Path | None:
    """Reuse the short directory of an earlier start if it is still there and nobody else's."""
    try:
        noted = Path(home.socket_note.read_text(encoding="utf-8"))
        found = noted.lstat()
    except (OSError, ValueError):
        return None
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == _PRIVATE_DIRECTORY
    return noted if is_private and found.st_uid == account.uid else None


def _short(home: Home, account: Account) -> Path:
    own = os.environ.get("XDG_RUNTIME_DIR")
    base = own if own and not account.is_other and len(own) <= LONGEST_SOCKET_PATH // 2 else "/tmp"  # noqa: S108
    made = Path(tempfile.mkdtemp(prefix="agentruns-", dir=base))
    os.chown(made, account.uid, account.gid)
    write_private(home.socket_note, str(made), account)
    return made


def remove_short_socket_directory(home: Home) -> None:
    """Take away what was made outside of the data directory, once its server has stopped."""
    try:
        Path(home.socket_note.read_text(encoding="utf-8")).rmdir()
        home.socket_note.unlink()
    except OSError:
        return
