"""Locks the pages of segments, so that a GPU reads and writes the data plane's memory directly.

The unit is a step of the segment. It is locked at the first copy, and stays locked while the segment is mapped: its
owner cannot give back the memory any more, because the GPU would continue to use the same pages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

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
        self._seen: WeakKeyDictionary[SegmentMemory, set[int]] = WeakKeyDictionary()
        """The steps of each segment that are locked, or cannot be."""
        self._lock = Lock()
        self._has_failed = False

    def lock(self, buffer: memoryview) -> list[memoryview]:
        """Locks the steps in which a tensor's buffer is. Does nothing for other memory, and for steps that were seen.

        Blocks for up to 0.3 s per gigabyte. Without a lock, copies are slower: the first failure logs a warning.

        Returns:
            the parts of the buffer, each of which is in one step: a copy of CUDA must not cross locks.
        """
        memory = memory_of(buffer)
        if memory is None:
            return [buffer]
        with memoryview(memory) as whole:
            base, offset = address_of(whole), address_of(buffer) - address_of(whole)
            parts = []
            for step in memory.layout.steps_of(offset, buffer.nbytes):
                position = memory.layout.step_bytes(step)
                with self._lock:
                    if step not in (seen := self._seen.setdefault(memory, set())):
                        seen.add(step)
                        self._lock_step(memory, step, base, position, whole.readonly)
                parts.append(buffer[max(0, position.start - offset) : position.stop - offset])
            return parts

    def _lock_step(self, memory: SegmentMemory, step: int, base: int, position: slice, is_readonly: bool) -> None:
        try:
            unlock = self._register(base + position.start, position.stop - position.start, is_readonly)
        except RuntimeError as error:
            if not self._has_failed:
                log.warning("cannot lock shared memory for the GPU: copies of tensors are slower: %s", error)
            self._has_failed = True
            return
        memory.before_unmap.append(unlock)
        memory.holds.keep(step, position)


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
