"""Process-wide settings of malloc and of the garbage collector."""

from __future__ import annotations

import ctypes
import gc

_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 256 * 1024


def return_large_blocks_to_the_system() -> None:
    """Makes malloc return the memory of request and response bodies to the system as soon as they are freed.

    By default, glibc raises its mmap threshold at the first large block and keeps later ones in its heap, where smaller
    blocks between them prevent their return: a burst of large responses would occupy its memory forever.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def reduce_garbage_collection() -> None:
    """Excludes all loaded objects from garbage collection, and reduces its frequency.

    Requests leave no reference cycles, even if they fail, so only cycles of app code remain. At Python's default
    frequency, scanning everything in flight would take a fifth of the gateway's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000)
