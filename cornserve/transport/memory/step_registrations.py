"""Registers the memory of segments with a device, so that it reads and writes tensors directly.

The unit is a step of the segment. It is registered at the first use, and stays registered while the segment is mapped:
its owner cannot give back the memory any more, because the device would continue to use the same pages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

from cornserve.transport.memory.segment import SegmentMemory, memory_of

log = logging.getLogger(__name__)


class StepRegistrations:
    """The steps that a device of this process can use. Can be used in any thread.

    Args:
        register: registers memory at an address and of a size in bytes, which may be read-only. Returns a function that
            ends the registration. Raises `RuntimeError`.
        failure: describes the effect of a failure in the log.
    """

    def __init__(self, register: Callable[[int, int, bool], Callable[[], object]], failure: str) -> None:
        self._register = register
        self._failure = failure
        self._seen: WeakKeyDictionary[SegmentMemory, set[int]] = WeakKeyDictionary()
        """The steps of each segment that are registered, or cannot be."""
        self._lock = Lock()
        self._has_failed = False

    def register(self, buffer: memoryview) -> list[memoryview]:
        """Registers the steps in which a tensor's buffer is, unless they were seen before. Other memory is ignored.

        Blocks; a GPU takes up to 0.3 s per gigabyte. The first failure logs a warning.

        Returns:
            the parts of the buffer, each of which is in one step: a copy of CUDA must not cross registrations.
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
                        self._register_step(memory, step, base, position, whole.readonly)
                parts.append(buffer[max(0, position.start - offset) : position.stop - offset])
            return parts

    def _register_step(self, memory: SegmentMemory, step: int, base: int, position: slice, is_readonly: bool) -> None:
        try:
            end = self._register(base + position.start, position.stop - position.start, is_readonly)
        except RuntimeError as error:
            if not self._has_failed:
                log.warning("%s: %s", self._failure, error)
            self._has_failed = True
            return
        memory.before_unmap.append(end)
        memory.holds.keep(step, position)


def address_of(buffer: memoryview) -> int:
    """Returns the address of a buffer, which may be read-only."""
    import numpy as np  # Only the extras that use devices install it.

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)
