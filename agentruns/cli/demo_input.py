"""Read the text that the demo works on, and refuse what is none before anything is started."""

from __future__ import annotations

import errno
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from agentruns.cli.demo_agent import input_of
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.errors import InvalidJsonError

_LIMIT: Final = JsonLimits.DEFAULT.max_bytes

#: Controls that text files have: backspace, tab, line feed, vertical tab, form feed, carriage return and escape.
_NO_TEXT: Final = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")


def read_text(path: Path | None) -> str:
    """Read a file, or the sample that comes with the package.

    Raises:
        OSError: the file cannot be read, is no text, is empty, or is too large for a request. It is named.
    """
    if path is None:
        return files("agentruns.cli").joinpath("sample.txt").read_text(encoding="utf-8")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise _refused(path, "The file is not a regular file")
    with path.open("rb") as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise _too_large(path)
    text = _decoded(data, path)
    if not text.strip():
        raise _refused(path, "The file is empty")
    try:
        BoundedJson.of(input_of(text))
    except InvalidJsonError as error:
        raise _too_large(path) from error
    return text


def _decoded(data: bytes, path: Path) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"  # the decoder's error carries the data
    if _NO_TEXT.search(text):
        raise _refused(path, "The file is not text in UTF-8 without control characters")
    return text


def _too_large(path: Path) -> OSError:
    return _refused(path, f"The file is larger than a request may be, {_LIMIT} bytes as JSON")


def _refused(path: Path, what: str) -> OSError:
    """Make an error that the command line reports as it reports a file that cannot be opened."""
    return OSError(errno.EINVAL, what, str(path))
