"""The C library, for system calls that Python does not have."""

from __future__ import annotations

import ctypes
import os
from typing import Final

LIBC: Final = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Returns the result of a call. Raises `OSError` if it is negative."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
