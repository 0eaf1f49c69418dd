"""The tensors that one invocation takes and makes.

What it takes is held until it ends. What it makes outlives it: whoever called it keeps it until all that want it have
ended (`Kept`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from cornserve.concurrency import run_unless
from cornserve.task import Tensor
from cornserve.task.references import Origin
from cornserve.transport import LostError, Production, Slot, StaleError, TensorId, TensorView, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.metrics import ExecutorMetrics


class InputLostError(Exception):
    """Tensors that the invocation takes are gone."""

    def __init__(self, inputs: list[int], message: str) -> None:
        self.inputs = inputs
        super().__init__(message)


class Tensors:
    def __init__(self, transport: Transport, start: pb.Start, metrics: ExecutorMetrics) -> None:
        self._transport = transport
        self._start = start
        self._metrics = metrics
        self._awaited = 0
        """Inputs that have not arrived."""
        self._received: dict[int, TensorView] = {}
        self._recalled: set[int] = set()
        """Inputs that an older request waits for."""
        self._recall = asyncio.Event()
        self._held = AsyncExitStack()
        self._production: Production | None = None

    def begin_production(self) -> None:
        """From now on its consumers find it, and it has the room that its age gives it."""
        start = self._start
        self._production = self._transport.produce(
            start.request_id, start.invocation, start.attempt, arrived_us=start.arrived_us
        )

    async def receive(self, tensor: Tensor) -> TensorView:
        (received,) = await self.receive_all([tensor])
        return received

    async def receive_all(self, tensors: Sequence[Tensor]) -> list[TensorView]:
        """Fails with the first that is lost. Others are likely lost with it, as their maker is gone: they are told
        together, so that they are made again together.

        Those that have arrived are given back when an older request needs their room, as it may have what we wait for.
        """
        arriving = [asyncio.ensure_future(self._arrival_of(tensor)) for tensor in tensors]
        arrival = asyncio.gather(*arriving)
        try:
            with self._waiting():
                if await run_unless(self._recall, arrival):
                    return arrival.result()
            raise InputLostError(sorted(self._recalled), "an older request has needed their room")
        except InputLostError as error:
            await asyncio.sleep(0)
            lost = [one.exception() for one in arriving if one.done() and not one.cancelled()]
            inputs = {index for loss in lost if isinstance(loss, InputLostError) for index in loss.inputs}
            raise InputLostError(sorted(inputs | self._recalled), str(error)) from error
        finally:
            for one in arriving:
                one.cancel()
            await asyncio.gather(*arriving, return_exceptions=True)

    async def _arrival_of(self, tensor: Tensor) -> TensorView:
        index, pending = self._find(tensor)
        source = TensorId(pending.endpoint, self._start.request_id, pending.invocation, pending.attempt, pending.output)
        try:
            consuming = self._transport.consume(source, partial(self._on_recall, index))
            received = await self._held.enter_async_context(consuming)
        except LostError as error:
            raise InputLostError([index], str(error)) from error
        self._received[index] = received
        return received

    def _on_recall(self, index: int) -> None:
        if self._awaited:  # else it is in use, and will be done with
            self._recalled.add(index)
            self._recall.set()

    def stale(self) -> list[int]:
        """The inputs that have been taken back since they came."""
        return [index for index, received in self._received.items() if _is_stale(received)]

    async def allocate(self, output: str, nbytes: int) -> Slot:
        return await self._made.allocate(output, nbytes)

    def reuse(self, output: str, key: str) -> bool:
        return self._made.reuse(output, key)

    async def let_go(self) -> None:
        """Of what it has taken."""
        await self._held.aclose()

    def take_production(self) -> Production | None:
        """What it has made, which is the caller's from now on."""
        production, self._production = self._production, None
        return production

    @property
    def _made(self) -> Production:
        if self._production is None:
            raise TypeError("the output of this executor's invocations has no Tensor")
        return self._production

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """An invocation counts as one that waits, for however many inputs."""
        self._metrics.waiting += not self._awaited
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1
            self._metrics.waiting -= not self._awaited

    def _find(self, tensor: Tensor) -> tuple[int, pb.Pending]:
        for index, one in enumerate(self._start.inputs):
            if Origin(one.pending.invocation, one.pending.output) == tensor.origin:
                return index, one.pending
        raise ValueError(f"{tensor!r} is no input of this invocation")


def _is_stale(received: TensorView) -> bool:
    try:
        received.check()
    except StaleError:
        return True
    return False


class Kept:
    """What the invocations of one caller have made, until it needs it no more: it says so, leaves, or is too late."""

    def __init__(self) -> None:
        self._productions: dict[int, Production] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def keep(self, call: int, production: Production, seconds: float | None) -> None:
        self._productions[call] = production
        if seconds is not None:
            self._timers[call] = asyncio.get_running_loop().call_later(seconds, self._drop, call, Production.revoke)

    def release(self, call: int) -> None:
        """Who still reads it may finish."""
        self._drop(call, Production.release)

    def revoke(self, call: int) -> None:
        """Whoever still reads it will hear that it is too late."""
        self._drop(call, Production.revoke)

    def revoke_all(self) -> None:
        for call in [*self._productions]:
            self.revoke(call)

    def _drop(self, call: int, how: Callable[[Production], None]) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()
        production = self._productions.pop(call, None)
        if production is not None:
            how(production)
