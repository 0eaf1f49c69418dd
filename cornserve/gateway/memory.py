"""What the gateway's process does with memory that it needs no more."""

from __future__ import annotations

import ctypes
import gc

_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 256 * 1024


def give_back_large_blocks() -> None:
    """Bodies and answers go back to the system as soon as they are freed. glibc would begin to keep blocks of that size
    when it has seen the first, and what is between them in its heap would keep them there: a burst of large answers
    would hold its memory for ever.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def collect_less_garbage() -> None:
    """What is loaded stays, and requests leave no circles, also if they fail. Those that an app's code may leave are
    looked for now and then: at Python's usual pace, among all that is in flight, that would cost a fifth of all time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000)
