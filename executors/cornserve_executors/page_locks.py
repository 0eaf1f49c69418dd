"""Locks the pages of segments, so that a GPU reads and writes the data plane's memory directly.

The whole segment is locked at the first copy, and stays locked while it is mapped. This takes no memory: its pages are
allocated when it is created. The system only cannot swap them out any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final
from weakref import WeakSet

import numpy as np
import torch

from cornserve.transport import SegmentMemory, memory_of

_READ_ONLY: Final = 8
"""`cudaHostRegisterReadOnly`, which memory needs that the process may only read."""

log = logging.getLogger(__name__)


class PageLocks:
    """The locks of a process. Can be used in any thread.

    Args:
        register: locks memory at an address and of a size in bytes, which may be read-only. Returns a function that
            unlocks it. Raises `RuntimeError`.
    """

    def __init__(self, register: Callable[[int, int, bool], Callable[[], object]]) -> None:
        self._register = register
        self._seen: WeakSet[SegmentMemory] = WeakSet()
        self._lock = Lock()
        self._has_failed = False

    def lock_segment_of(self, buffer: memoryview) -> None:
        """Locks the segment in which a tensor's buffer is. Does nothing for a segment that was seen, or other memory.

        Blocks for up to 0.3 s per gigabyte. Without a lock, copies are slower: the first failure logs a warning.
        """
        memory = memory_of(buffer)
        if memory is None:
            return
        with self._lock:
            if memory not in self._seen:
                self._seen.add(memory)
                self._lock_memory(memory)

    def _lock_memory(self, memory: SegmentMemory) -> None:
        with memoryview(memory) as whole:
            try:
                memory.before_unmap = self._register(address_of(whole), whole.nbytes, whole.readonly)
            except RuntimeError as error:
                if not self._has_failed:
                    log.warning("cannot lock shared memory for the GPU: copies of tensors are slower: %s", error)
                self._has_failed = True


def address_of(buffer: memoryview) -> int:
    """Returns the address of a buffer, which may be read-only."""
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def _register(address: int, nbytes: int, is_readonly: bool) -> Callable[[], object]:
    cudart = torch.cuda.cudart()
    # CUDA also reports an error to the next check in the same thread, so the call has its own thread.
    with ThreadPoolExecutor(1) as thread:
        error = thread.submit(cudart.cudaHostRegister, address, nbytes, _READ_ONLY if is_readonly else 0).result()
    torch.cuda.check_error(int(error))
    return partial(cudart.cudaHostUnregister, address)


CUDA_LOCKS = PageLocks(_register)
