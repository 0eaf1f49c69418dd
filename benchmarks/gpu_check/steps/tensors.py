"""Tensors from a device through the data plane to a device, compared with plain copies of CUDA."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from mmap import mmap
from statistics import median

import torch

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.tensor_consumer import CREDENTIALS, Consumer, ConsumerError
from cornserve.transport import Production, TensorId, Transport
from cornserve.wire.listener import ConnectionListener
from cornserve_executors.tensor_copies import copy_from_buffer, copy_to_buffer

MEGABYTES = (1, 4, 109, 350)
"""The embeddings of small and large images, and of videos; the last is about the keys and values of a long prompt."""

ROUNDS = 7


async def run(check: Check) -> None:
    megabytes = MEGABYTES[:2] if check.is_tiny else MEGABYTES
    slab_bytes = 3 * max(megabytes) * 10**6
    free = shutil.disk_usage(check.shared_memory).free
    if free < slab_bytes:
        check.report.skip("all cases", f"{slab_bytes // 10**6} MB are needed in /dev/shm, and {free // 10**6} are free")
        return
    transport = Transport(check.shared_memory, CREDENTIALS, slab_bytes=slab_bytes, request_bytes=2 * slab_bytes // 3)
    listener = ConnectionListener(await transport.start(), CREDENTIALS)
    endpoint = await listener.listen("127.0.0.1:0")
    try:
        await transport.create_slab()
        with Consumer(check.device, check.shared_memory, slab_bytes) as consumer:
            await _measure_all(check, transport, endpoint, consumer, megabytes)
    finally:
        await listener.close()
        await transport.stop()


async def _measure_all(
    check: Check, transport: Transport, endpoint: str, consumer: Consumer, megabytes: Sequence[int]
) -> None:
    measurements = []
    for size in megabytes:
        if check.report.can_start(f"{size} MB", 5):
            measurement = _TensorMeasurement(check, transport, endpoint, consumer, size * 10**6)
            await measurement.run()
            measurements.append(measurement)
    # Last, because an error of CUDA IPC can break the consumer.
    for measurement in measurements:
        await measurement.run_ipc()


class _TensorMeasurement:
    """The copies of tensors of one size."""

    def __init__(self, check: Check, transport: Transport, endpoint: str, consumer: Consumer, nbytes: int) -> None:
        self._check = check
        self._transport = transport
        self._endpoint = endpoint
        self._consumer = consumer
        self._tensor = torch.randn(nbytes // 2, device=check.device).to(torch.bfloat16)
        self._size = f"{nbytes // 10**6} MB"
        self._invocations = 0
        self._copies_ms = 0.0
        """The duration of one copy of CUDA each way."""

    async def run(self) -> None:
        size = self._size
        to_host, to_device = self._plain_copies()
        self._copies_ms = to_host + to_device
        self._check.report.add(
            f"{size}: one copy of CUDA to pinned memory, and one back",
            to_host_ms=to_host,
            to_device_ms=to_device,
            gb_per_s=2 * self._tensor.nbytes / self._copies_ms / 1e6,
        )
        self._report_copies(f"{size}: ordinary memory", memoryview(mmap(-1, self._tensor.nbytes)))
        production = self._produce()
        slot = await production.allocate("tensor", self._tensor.nbytes)
        self._report_copies(f"{size}: pages of the slab", slot.buffer)
        slot.discard()
        production.release()
        hop = await self._median_of(self._hop)
        self._check.report.add(f"{size}: to another process", whole_ms=hop, times_one_copy=hop / self._copies_ms)

    async def run_ipc(self) -> None:
        case = f"{self._size}: to another process by CUDA IPC"
        if self._check.device == "cpu":
            self._check.report.skip(case, "needs a GPU")
        elif self._check.report.can_start(case):
            try:
                hop = await self._median_of(self._ipc_hop)
            except ConsumerError as error:
                self._check.report.skip(case, str(error))
                return
            self._check.report.add(case, whole_ms=hop, times_one_copy=hop / self._copies_ms)

    def _plain_copies(self) -> tuple[float, float]:
        """Returns the durations of copies to the host and back in ms."""
        pinned = torch.empty_like(self._tensor, device="cpu", pin_memory=self._check.device == "cuda")
        to_host = median(self._timed(lambda: pinned.copy_(self._tensor)) for _ in range(ROUNDS))
        to_device = median(self._timed(lambda: self._tensor.copy_(pinned)) for _ in range(ROUNDS))
        return to_host, to_device

    def _report_copies(self, case: str, buffer: memoryview) -> None:
        """Measures the copies of executors to the buffer and from it. The first copy page-locks the slab."""
        received: list[torch.Tensor] = []

        def write() -> None:
            copy_to_buffer(self._tensor, buffer)

        def read() -> None:
            shape, device = tuple(self._tensor.shape), self._check.device
            received[:] = [copy_from_buffer(buffer, "bfloat16", shape, device)]

        first = self._timed(write)
        written = median(self._timed(write) for _ in range(ROUNDS))
        copied = median(self._timed(read) for _ in range(ROUNDS))
        assert received[0].equal(self._tensor), "the tensor has changed on its way"
        self._check.report.add(
            case,
            to_host_ms=written,
            to_device_ms=copied,
            gb_per_s=2 * self._tensor.nbytes / (written + copied) / 1e6,
            times_one_copy=(written + copied) / self._copies_ms,
            first_to_host_ms=first,
        )

    async def _hop(self) -> float:
        """Returns the duration from a tensor on this process's device to a tensor on the consumer's, in ms."""
        started = time.perf_counter_ns()
        production = self._produce()
        tensor_id = TensorId(self._endpoint, "check", self._invocations, 0, "tensor")
        arrival = asyncio.create_task(self._consumer.consume(tensor_id))
        slot = await production.allocate("tensor", self._tensor.nbytes)
        await asyncio.to_thread(copy_to_buffer, self._tensor, slot.buffer)
        slot.publish("bfloat16", tuple(self._tensor.shape), b"")
        arrived = await arrival
        production.release()
        return (arrived - started) / 1e6

    async def _ipc_hop(self) -> float:
        """Returns the duration of the same without the data plane: the consumer maps the memory of the GPU."""
        started = time.perf_counter_ns()
        arrived = await self._consumer.consume_ipc(self._tensor)
        return (arrived - started) / 1e6

    async def _median_of(self, hop: Callable[[], Awaitable[float]]) -> float:
        await hop()
        return median([await hop() for _ in range(ROUNDS)])

    def _produce(self) -> Production:
        self._invocations += 1
        return self._transport.produce("check", self._invocations, 0, arrived_us=0)

    def _timed(self, copy: Callable[[], object]) -> float:
        self._synchronize()
        started = time.perf_counter()
        copy()
        self._synchronize()
        return (time.perf_counter() - started) * 1e3

    def _synchronize(self) -> None:
        if self._check.device == "cuda":
            torch.cuda.synchronize()
