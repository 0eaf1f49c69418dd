"""The context of an invocation: an executor streams, receives tensors and allocates tensors through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, Self, TypeVar

from cornserve.due_queue import DueTime
from cornserve.task import Tensor, TensorStream
from cornserve.transport import Slot, TensorView
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.tensors import InvocationTensors
from cornserve_tasklib.seeds import SEED_BITS


class InvocationCaller(Protocol):
    """The caller of one invocation."""

    async def send(self, output: str, item: bytes) -> None:
        """Sends an item of an output, as JSON. Waits while the caller reads too slowly."""

    def wants_hand_over(self) -> bool:
        """Returns whether this replica leaves, and the caller has another one for the invocation."""
        ...

    def on_hand_over(self, callback: Callable[[], None]) -> None:
        """Calls the function when `wants_hand_over` becomes true."""


class Seeded(Protocol):
    """A request with a seed."""

    @property
    def seed(self) -> int | None: ...

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self: ...


SeededRequest = TypeVar("SeededRequest", bound=Seeded)


class InvocationContext:
    """One invocation, from the perspective of the executor."""

    __slots__ = (
        "_caller",
        "_invocation",
        "_outputs",
        "_tensors",
        "delivered",
        "due",
        "id",
        "input_bytes",
        "request_id",
    )

    def __init__(self, start: pb.Start, tensors: InvocationTensors, caller: InvocationCaller) -> None:
        self.request_id = start.request_id
        self.id = f"{start.request_id}/{start.invocation}/{start.attempt}"
        """Unique for this attempt of this invocation."""
        self.input_bytes = len(start.request)
        """The size of the invocation's input as JSON."""
        self.delivered = _items_by_output(start.delivered)
        """Items, as JSON and by output, that an earlier attempt has sent. For executors with `continues`."""
        self.due = DueTime(start.arrived_us, start.due_us)
        self._invocation = start.invocation
        self._outputs = frozenset(start.outputs)
        self._tensors = tensors
        self._caller = caller

    def with_seed(self, request: SeededRequest) -> SeededRequest:
        """Returns the request with its seed, or else with one that all attempts of this invocation have."""
        if request.seed is not None:
            return request
        digest = sha256(f"{self.request_id}/{self._invocation}".encode()).digest()
        return request.model_copy(update={"seed": int.from_bytes(digest) % (1 << SEED_BITS)})

    def is_requested(self, output: str) -> bool:
        """Returns whether the caller reads this stream, or an invocation consumes this stream of tensors.

        An executor can skip the computation of other streams. A stream of tensors whose consumer has ended is not
        requested any more.
        """
        return output in self._outputs and not self._tensors.is_discarded(output)

    async def send(self, output: str, item: bytes) -> None:
        """Sends the next item of a stream, or a value before the end, as JSON. Waits while the caller reads too
        slowly."""
        await self._caller.send(output, item)

    def wants_hand_over(self) -> bool:
        """Returns whether this replica leaves, and the caller has another one for the invocation.

        An executor with `continues` then raises `HandedOverError` as soon as the other one continues exactly after the
        sent items. It may first send items of a stream that the client does not read: the other one receives them.
        """
        return self._caller.wants_hand_over()

    def on_hand_over(self, callback: Callable[[], None]) -> None:
        """Calls the function when `wants_hand_over` becomes true, for executors that do not look for it again and
        again."""
        self._caller.on_hand_over(callback)

    async def receive(self, tensor: Tensor) -> TensorView:
        """Waits for one of the request's tensors. Its data can be read until the invocation ends; call
        `TensorView.check` after the last read.

        An invocation that waits here counts as not started: it must not hold resources that other invocations need.

        Raises `InputLostError`; do not catch it.
        """
        return await self._tensors.receive(tensor)

    async def receive_all(self, tensors: Sequence[Tensor]) -> list[TensorView]:
        """Waits for several tensors concurrently, and returns them in the given order.

        Raises one `InputLostError` for all tensors that are lost.
        """
        return await self._tensors.receive_all(tensors)

    async def release(self, tensor: Tensor) -> None:
        """Gives up a tensor, of which the executor has a copy, or which it does not need: its memory may be free before
        the invocation ends. Do not receive it again. If the invocation runs again, the tensor is produced again."""
        await self._tensors.release(tensor)

    def receive_stream(self, stream: TensorStream) -> AsyncIterator[TensorView]:
        """Yields the tensors of a stream while its producer runs. Each can be read until the next is requested; call
        `TensorView.check` after the last read from it.

        The producer waits while `STREAM_WINDOW` tensors are unread: do not wait for anything that it publishes later.
        The invocation counts as not started until the first tensor arrives.

        Raises `InputLostError` if the rest of the stream is lost; do not catch it. The invocation then runs again from
        the start of the stream, unless it has sent output that cannot be continued.
        """
        return self._tensors.receive_stream(stream)

    async def publish(
        self,
        output: str,
        data: bytes | bytearray | memoryview,
        dtype: str,
        shape: tuple[int, ...],
        metadata: bytes = b"",
    ) -> None:
        """Publishes a copy of the data as the next tensor of this stream of tensors.

        Waits while its consumer has not read `STREAM_WINDOW` tensors, and while the memory is in use. Does nothing if
        the stream has no consumer, or the consumer has ended. The stream ends with the invocation.

        Args:
            dtype: such as "bfloat16".
            shape: the shape of this tensor; the tensors of a stream may have different dtypes and shapes.
            metadata: for the consumer.

        Raises:
            ValueError: dtype and shape do not match the data.
            TypeError: the executor's output does not have a `TensorStream` of this name.
        """
        await self._tensors.publish(output, data, dtype, shape, metadata)

    async def allocate(self, output: str, nbytes: int) -> Slot:
        """Allocates shared memory for the tensor of this output. Waits while the memory is in use; older requests are
        served first.

        Write to `Slot.buffer`, then call `Slot.publish` with dtype and shape, or `Slot.discard`.

        Args:
            nbytes: the size of the whole tensor.

        Raises:
            TensorTooLargeError: the tensor exceeds the limit of a request. If it is not caught, the client receives it.
            SlabError: the machine has no memory for the tensor. If it is not caught, the client may retry.
            LostError: the invocation's tensors have been revoked.
            TypeError: the executor's output does not have a `Tensor` of this name.
        """
        return await self._tensors.allocate(output, nbytes)

    async def allocate_state(self, nbytes: int) -> Slot | None:
        """Allocates memory for a tensor with which another replica continues this invocation sooner.

        Publish it before `HandedOverError` is raised. Returns None if the memory does not become free soon: the other
        replica then has no state.
        """
        return await self._tensors.allocate_state(nbytes)

    async def receive_state(self) -> TensorView | None:
        """Waits for the tensor that another replica has published before it handed this invocation over.

        Returns None if it has not published one, or if that is lost: the invocation continues from `delivered` alone.
        The tensor may have been published after fewer items than those of `delivered`. `TensorView.check` raises
        `StaleError` if it is lost later.
        """
        return await self._tensors.receive_state()

    async def release_state(self) -> None:
        """Gives up the received state, so that the other replica can exit before the invocation ends."""
        await self._tensors.release_state()

    def reuse(self, output: str, key: str) -> bool:
        """Publishes the cached tensor that an earlier invocation published under this key (`Slot.publish`). Returns
        whether the cache contains it."""
        return self._tensors.reuse(output, key)


def _items_by_output(chunks: Iterable[pb.OutputChunk]) -> Mapping[str, Sequence[bytes]]:
    items: dict[str, list[bytes]] = {}
    for chunk in chunks:
        items.setdefault(chunk.output, []).append(chunk.item)
    return items
