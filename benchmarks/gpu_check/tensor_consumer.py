"""Another process that receives tensors, on the same device."""

from __future__ import annotations

import asyncio
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

START_SECONDS = 120

_processes = torch.multiprocessing.get_context("spawn")


class Consumer:
    """Starts the process when the block begins, and ends it with the block."""

    def __init__(self, device: str, directory: Path) -> None:
        self._commands = _processes.Queue()
        self._arrivals = _processes.Queue()
        arguments = (device, directory, self._commands, self._arrivals)
        self._process = _processes.Process(target=_run, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._arrivals.get(timeout=START_SECONDS)
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
        self._commands.put(command)
        arrived: int = await asyncio.to_thread(self._arrivals.get, timeout=START_SECONDS)
        return arrived


def _run(device: str, directory: Path, commands: Any, arrivals: Any) -> None:
    asyncio.run(_consume_all(device, directory, commands, arrivals))


async def _consume_all(device: str, directory: Path, commands: Any, arrivals: Any) -> None:
    transport = Transport(directory, CREDENTIALS, slab_bytes=1 << 20, request_bytes=1 << 20)
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
