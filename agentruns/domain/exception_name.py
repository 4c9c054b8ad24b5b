"""The one thing about an exception of somebody else's code that leaves the process."""

from __future__ import annotations

import re

_MAX_LENGTH = 128
_UNSAFE = re.compile(r"[^A-Za-z0-9_.<>]")


def exception_name(error: BaseException) -> str:
    """Name an exception's class, qualified by its module, in at most 128 safe ASCII characters.

    Nothing that the exception says or holds is asked for.
    """
    kind = type(error)
    return _UNSAFE.sub("_", f"{kind.__module__}.{kind.__qualname__}")[:_MAX_LENGTH]
