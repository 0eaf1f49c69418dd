"""Tensors that an invocation consumes and produces.

Its inputs are held until it ends, or releases them. Its outputs outlive it: the executor retains them until the caller
releases them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from functools import cached_property, partial
from typing import TypeVar

from cornserve.concurrency import run_unless
from cornserve.task import Tensor, TensorStream
from cornserve.task.references import Origin, TensorReference
from cornserve.transport import (
    LostError,
    Production,
    Slot,
    StaleError,
    StreamWriter,
    TensorId,
    TensorView,
    Transport,
    TransportError,
)
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import STATE
from cornserve_executors.base.compute_time import ComputeTime
from cornserve_executors.base.metrics import ExecutorMetrics

Result = TypeVar("Result")

STATE_SECONDS = 5.0
"""The time in which the state of an invocation must arrive, and in which memory for it must be free."""


class InputLostError(Exception):
    """Input tensors of an invocation are lost."""

    def __init__(self, inputs: list[int], message: str) -> None:
        self.inputs = inputs
        super().__init__(message)


class InvocationTensors:
    """The input and output tensors of one invocation.

    Args:
        compute_time: measures the invocation, except for the time in which it waits for tensors.
        tensor_streams: the outputs that are streams of tensors.
        on_taken: informs the caller that an input is not read any more.
    """

    def __init__(
        self,
        transport: Transport,
        start: pb.Start,
        metrics: ExecutorMetrics,
        compute_time: ComputeTime,
        tensor_streams: frozenset[str],
        on_taken: Callable[[int], None],
    ) -> None:
        self._transport = transport
        self._start = start
        self._metrics = metrics
        self._compute_time = compute_time
        self._on_taken = on_taken
        self._waits = 0
        """Calls of `receive_all` that have not returned."""
        self._views: dict[int, TensorView] = {}
        self._recalled: set[int] = set()
        """Inputs that an older request needs the space of."""
        self._recall = asyncio.Event()
        self._leases = AsyncExitStack()
        self._leases_of: dict[int, AsyncExitStack] = {}
        """The leases on single tensors, by input."""
        self._production: Production | None = None
        self._tensor_streams = tensor_streams
        self._writers: dict[str, StreamWriter] = {}
        """The writers of the streams of tensors that have a consumer."""
        self._discarded: set[str] = set()
        """The streams of tensors whose consumer has ended."""
        self._consumer: tuple[str, int] | None = None
        """The replica that reads the tensors, and the number of the replicas of its group."""

    def begin_production(self) -> None:
        """Enables subscriptions to the outputs, the allocation of slots, and the publishing of streams."""
        start = self._start
        self._production = self._transport.produce(
            start.request_id, start.invocation, start.attempt, arrived_us=start.arrived_us
        )
        if self._consumer is not None:
            self._production.bind_consumer(*self._consumer)
        for output in self._tensor_streams.intersection(start.outputs) - self._discarded:
            self._writers[output] = self._production.stream(output)

    def bind_consumer(self, endpoint: str, replicas: int) -> None:
        """Limits the tensors to the share of their consumer. See `Production.bind_consumer`."""
        self._consumer = endpoint, replicas
        if self._production is not None:
            self._production.bind_consumer(endpoint, replicas)

    async def receive(self, tensor: Tensor) -> TensorView:
        (view,) = await self.receive_all([tensor])
        return view

    async def receive_all(self, tensors: Sequence[Tensor]) -> list[TensorView]:
        """Waits for all tensors, and holds them until `release_inputs`.

        While it waits it gives up tensors that an older request needs the space of, because that request may hold the
        tensors that this invocation waits for.

        Raises:
            InputLostError: names all inputs that are lost at that time, so that they are produced again together.
        """
        receptions = [asyncio.ensure_future(self._receive(tensor)) for tensor in tensors]
        views = asyncio.gather(*receptions)
        try:
            return await self._unless_recalled(views)
        except InputLostError as error:
            await asyncio.sleep(0)  # other inputs are often lost with the first, because their producer has ended
            errors = [task.exception() for task in receptions if task.done() and not task.cancelled()]
            inputs = {index for loss in errors if isinstance(loss, InputLostError) for index in loss.inputs}
            raise InputLostError(sorted(inputs | self._recalled), str(error)) from error
        finally:
            for task in receptions:
                task.cancel()
            await asyncio.gather(*receptions, return_exceptions=True)

    async def _receive(self, tensor: Tensor) -> TensorView:
        index, tensor_id = self._find_input(tensor)
        leases = self._leases_of.setdefault(index, await self._leases.enter_async_context(AsyncExitStack()))
        try:
            lease = self._transport.consume(tensor_id, partial(self._on_recall, index))
            view = await leases.enter_async_context(lease)
        except LostError as error:
            raise InputLostError([index], str(error)) from error
        self._views[index] = view
        return view

    async def release(self, tensor: Tensor) -> None:
        """Ends the lease on a tensor, if it was received. The invocation does not read it any more."""
        index, _ = self._find_input(tensor)
        await self._release_input(index)

    async def _release_input(self, index: int) -> None:
        self._on_taken(index)
        if (leases := self._leases_of.pop(index, None)) is not None:
            self._views.pop(index, None)
            await leases.aclose()

    async def receive_state(self) -> TensorView | None:
        """Returns the state of an earlier attempt, and holds it until `release_state` or `release_inputs`.

        Returns None without a state, or if it is lost or does not arrive in time. The state becomes stale if an older
        request needs its space while the invocation waits for other tensors.
        """
        if not self._start.has_state:
            return None
        index = self._state_index
        leases = self._leases_of[index] = await self._leases.enter_async_context(AsyncExitStack())
        try:
            with self._waiting():
                async with asyncio.timeout(STATE_SECONDS):
                    lease = self._transport.consume(self._tensor_id(index), self._on_state_recall)
                    return await leases.enter_async_context(lease)
        except (TransportError, TimeoutError):
            await self.release_state()  # The other replica can exit.
            return None

    async def release_state(self) -> None:
        """Ends the lease on the state, if there is one. The invocation does not read it any more."""
        if self._start.has_state:
            await self._release_input(self._state_index)

    @property
    def _state_index(self) -> int:
        return len(self._start.inputs) - 1

    async def allocate_state(self, nbytes: int) -> Slot | None:
        """Returns memory for the state with which another replica continues. None if it does not become free in
        time."""
        try:
            if self._production is None:
                self.begin_production()
            async with asyncio.timeout(STATE_SECONDS):
                return await self._open_production.allocate(STATE, nbytes)
        except (TransportError, TimeoutError):
            return None

    @property
    def has_state(self) -> bool:
        """Whether the state with which another replica continues has been published."""
        return self._production is not None and not self._production.unpublished([STATE])

    def receive_stream(self, stream: TensorStream) -> AsyncGenerator[TensorView, None]:
        """Yields the tensors of a stream, and holds each until the next is requested, or until `release_inputs`.

        While it waits for the first tensor, it gives up inputs that an older request needs the space of.
        """
        views = self._receive_stream(stream)
        self._leases.push_async_callback(views.aclose)
        return views

    async def _receive_stream(self, stream: TensorStream) -> AsyncGenerator[TensorView, None]:
        index, tensor_id = self._find_input(stream)
        async with aclosing(self._transport.consume_stream(tensor_id)) as views:
            try:
                first = asyncio.ensure_future(anext(views, None))
                view = await self._unless_recalled(first)
                while view is not None:
                    self._views[index] = view
                    yield view
                    view = await anext(views, None)
            except LostError as error:
                raise InputLostError([index], str(error)) from error

    def _on_recall(self, index: int) -> None:
        if self._waits:  # An input in use is released when the invocation ends.
            self._recalled.add(index)
            self._recall.set()

    def _on_state_recall(self) -> None:
        if self._waits:
            self._recall.set()

    async def _unless_recalled(self, tensors: asyncio.Future[Result]) -> Result:
        """Waits for tensors. Gives up what an older request needs the space of: the state, which the invocation can do
        without, or the inputs.

        Raises `InputLostError` with the inputs.
        """
        try:
            with self._waiting():
                while not await run_unless(self._recall, asyncio.shield(tensors)):
                    if self._recalled:
                        raise InputLostError(sorted(self._recalled), "an older request needs the space of an input")
                    self._recall.clear()
                    await self.release_state()
            return tensors.result()
        finally:
            tensors.cancel()
            await asyncio.gather(tensors, return_exceptions=True)

    def stale_inputs(self) -> list[int]:
        """Returns the received inputs that their producers have revoked."""
        return [index for index, view in self._views.items() if _is_stale(view)]

    async def allocate(self, output: str, nbytes: int) -> Slot:
        if output in self._tensor_streams:
            raise TypeError(f"the output {output!r} is a TensorStream: publish its tensors")
        return await self._open_production.allocate(output, nbytes)

    def reuse(self, output: str, key: str) -> bool:
        return self._open_production.reuse(output, key)

    async def publish(
        self, output: str, data: bytes | bytearray | memoryview, dtype: str, shape: tuple[int, ...], metadata: bytes
    ) -> None:
        if output not in self._tensor_streams:
            raise TypeError(f"the output type of this executor has no TensorStream {output!r}")
        writer = self._writers.get(output)
        if writer is not None:
            await writer.send(data, dtype, shape, metadata)

    def unpublished(self, outputs: Iterable[str]) -> list[str]:
        """Returns which of the outputs, which are single tensors, have not been published."""
        return [] if self._production is None else self._production.unpublished(outputs)

    def is_discarded(self, output: str) -> bool:
        """Returns whether the consumer of a stream of tensors has ended."""
        return output in self._discarded

    def discard_streams(self, outputs: Iterable[str]) -> None:
        """Drops the tensors of streams whose consumers have ended."""
        for output in self._tensor_streams.intersection(outputs):
            self._discarded.add(output)
            writer = self._writers.pop(output, None)
            if writer is not None:
                writer.discard()

    def end_streams(self) -> None:
        """Marks the streams of tensors as complete."""
        for writer in self._writers.values():
            writer.close()

    async def release_inputs(self) -> None:
        self._leases_of.clear()  # The end of the invocation has been sent.
        await self._leases.aclose()

    def take_production(self) -> Production | None:
        """Returns the production, which the caller must release or revoke."""
        production, self._production = self._production, None
        return production

    @property
    def _open_production(self) -> Production:
        if self._production is None:
            raise TypeError("the output type of this executor has no Tensor field")
        return self._production

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Counts the invocation as waiting once, even during concurrent calls."""
        if not self._waits:
            self._metrics.waiting += 1
            self._compute_time.pause()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits:
                self._metrics.waiting -= 1
                self._compute_time.resume()

    def _find_input(self, tensor: TensorReference) -> tuple[int, TensorId]:
        index = self._index_by_origin.get(tensor.origin)
        if index is None:
            raise ValueError(f"{tensor!r} is not an input of this invocation")
        return index, self._tensor_id(index)

    def _tensor_id(self, index: int) -> TensorId:
        pending = self._start.inputs[index].pending
        request_id = self._start.request_id
        return TensorId(pending.endpoint, request_id, pending.invocation, pending.attempt, pending.output)

    @cached_property
    def _index_by_origin(self) -> dict[Origin | None, int]:
        """The first input of each origin."""
        indices: dict[Origin | None, int] = {}
        for index, given in enumerate(self._start.inputs):
            if given.HasField("pending"):
                indices.setdefault(Origin(given.pending.invocation, given.pending.output), index)
        return indices


def _is_stale(view: TensorView) -> bool:
    try:
        view.check()
    except StaleError:
        return True
    return False


class RetainedProductions:
    """Productions of one caller's ended invocations, until the caller releases them, leaves, or exceeds a deadline."""

    def __init__(self) -> None:
        self._productions: dict[int, Production] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __contains__(self, call: int) -> bool:
        return call in self._productions

    def add(self, call: int, production: Production, seconds: float | None) -> None:
        """Retains the production; revokes it after `seconds`, or never if None."""
        self._productions[call] = production
        if seconds is not None:
            self._timers[call] = asyncio.get_running_loop().call_later(seconds, self.revoke, call)

    def bind_consumer(self, call: int, endpoint: str, replicas: int) -> None:
        """Counts the tensors as those for a consumer. See `Production.bind_consumer`."""
        self._productions[call].bind_consumer(endpoint, replicas)

    def release(self, call: int) -> None:
        """Frees the tensors when their current consumers have finished."""
        self._remove(call, Production.release)

    def revoke(self, call: int) -> None:
        """Frees the tensors immediately. For current consumers, the tensors become stale."""
        self._remove(call, Production.revoke)

    def revoke_all(self) -> None:
        for call in [*self._productions]:
            self.revoke(call)

    def _remove(self, call: int, end: Callable[[Production], None]) -> None:
        timer = self._timers.pop(call, None)
        if timer is not None:
            timer.cancel()
        production = self._productions.pop(call, None)
        if production is not None:
            end(production)
