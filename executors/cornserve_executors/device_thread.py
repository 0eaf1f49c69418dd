"""The thread that runs all work of the device."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from cornserve_executors.base import EngineDeadError, OverloadedError

Result = TypeVar("Result")


class DeviceThread:
    """A GPU or the CPU, whose work runs in a single thread, in order."""

    def __init__(self) -> None:
        self.name = "cuda" if torch.cuda.is_available() else "cpu"
        self.thread = ThreadPoolExecutor(1, "device", torch.set_num_threads, (device_threads(),))
        self._death: EngineDeadError | None = None
        self._died = asyncio.Event()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Raises `OverloadedError` if the memory is full, and `EngineDeadError` if the device has failed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, run_on_device, work)
        except EngineDeadError as error:
            self._death = error
            self._died.set()
            raise

    async def wait_death(self) -> None:
        """Waits until the device fails permanently in `run`, and raises the `EngineDeadError`."""
        await self._died.wait()
        assert self._death is not None
        raise self._death

    def shutdown(self) -> None:
        """Blocks until the current work is done."""
        self.thread.shutdown(cancel_futures=True)


def device_threads() -> int:
    """Returns the number of torch's threads on a CPU: one core reads inputs and encodes outputs meanwhile."""
    threads: int = torch.get_num_threads()
    return min(threads, max(1, len(os.sched_getaffinity(0)) - 1))


def run_on_device(work: Callable[[], Result]) -> Result:
    """Runs work in the current thread, which is the device's, and waits until its tensors are complete.

    Raises like `DeviceThread.run`.
    """
    try:
        with torch.inference_mode():
            result = work()
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
    except torch.OutOfMemoryError as error:
        raise OverloadedError(f"the request does not fit into the GPU's memory: {error}") from error
    except torch.AcceleratorError as error:
        raise EngineDeadError(str(error).splitlines()[0]) from error
    return result
