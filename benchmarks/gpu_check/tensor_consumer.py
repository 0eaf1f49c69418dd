"""Another process that receives tensors, on the same device."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.multiprocessing

from cornserve.instance_secret import KEY_BYTES, InstanceSecret
from cornserve.transport import TensorId, Transport
from cornserve.wire.credentials import ConnectionCredentials
from cornserve_executors.tensor_copies import copy_from_buffer

CREDENTIALS = ConnectionCredentials(InstanceSecret(bytes(KEY_BYTES)))
"""Both processes run only during the check."""

START_SECONDS = 60
ANSWER_SECONDS = 20

_processes = torch.multiprocessing.get_context("spawn")


class ConsumerError(Exception):
    """The consumer has failed, or has not answered. It cannot be called again."""


class Consumer:
    """Starts the process when the block begins, and ends it with the block."""

    def __init__(self, device: str, directory: Path, slab_bytes: int) -> None:
        self._commands = _processes.Queue()
        self._arrivals = _processes.Queue()
        self._error: ConsumerError | None = None
        arguments = (device, directory, slab_bytes, self._commands, self._arrivals)
        self._process = _processes.Process(target=_run, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._wait(START_SECONDS)
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._commands.put(None)
        self._process.join(10)
        self._process.kill()

    async def consume(self, tensor_id: TensorId) -> int:
        """Returns the value of `time.perf_counter_ns` when the tensor is on the consumer's device."""
        return await self._call(tensor_id)

    async def consume_ipc(self, tensor: torch.Tensor) -> int:
        """Returns the same for a tensor whose memory on the GPU the consumer maps, and then copies."""
        return await self._call(tensor)

    async def _call(self, command: TensorId | torch.Tensor) -> int:
        if self._error is not None:
            raise self._error
        self._commands.put(command)
        return await asyncio.to_thread(self._wait, ANSWER_SECONDS)

    def _wait(self, seconds: float) -> int:
        try:
            answer: int | str = self._arrivals.get(timeout=seconds)
        except queue.Empty:
            answer = f"the consumer has not answered within {seconds:.0f} s"
        if isinstance(answer, str):
            self._error = ConsumerError(answer)
            raise self._error
        return answer


def _run(device: str, directory: Path, slab_bytes: int, commands: Any, arrivals: Any) -> None:
    try:
        asyncio.run(_consume_all(device, directory, slab_bytes, commands, arrivals))
    except Exception as error:
        arrivals.put(f"{type(error).__name__}: {error}".splitlines()[0])
        raise


async def _consume_all(device: str, directory: Path, slab_bytes: int, commands: Any, arrivals: Any) -> None:
    transport = Transport(directory, CREDENTIALS, slab_bytes=slab_bytes, request_bytes=2 * slab_bytes // 3)
    await transport.start()
    torch.zeros(1, device=device)
    arrivals.put(time.perf_counter_ns())
    while (command := await asyncio.to_thread(commands.get)) is not None:
        receive = _receive if isinstance(command, TensorId) else _receive_ipc
        await receive(transport, command, device)
        arrivals.put(time.perf_counter_ns())
        del command
    await transport.stop()


async def _receive(transport: Transport, tensor_id: TensorId, device: str) -> None:
    async with transport.consume(tensor_id) as tensor:
        await asyncio.to_thread(_copy, lambda: copy_from_buffer(tensor.view, tensor.dtype, tensor.shape, device))
        tensor.check()


async def _receive_ipc(transport: Transport, tensor: torch.Tensor, device: str) -> None:
    _copy(tensor.clone)


def _copy(copy: Callable[[], torch.Tensor]) -> None:
    copied = copy()
    if copied.is_cuda:
        torch.cuda.synchronize()
