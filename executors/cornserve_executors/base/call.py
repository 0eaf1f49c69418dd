"""What an executor is given with a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from cornserve.task import Tensor
from cornserve.transport import Slot, TensorView
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base.tensors import Tensors

Send = Callable[[str, bytes], Awaitable[None]]
"""Sends an item of an output to the caller, as JSON. Waits while it is behind."""


class Call:
    """One invocation, as the executor sees it."""

    __slots__ = ("_outputs", "_send", "_tensors", "delivered", "has_begun", "id", "request_id")

    def __init__(self, start: pb.Start, tensors: Tensors, send: Send) -> None:
        self.request_id = start.request_id
        self.id = f"{start.request_id}/{start.invocation}/{start.attempt}"
        """Names this attempt of this invocation, uniquely."""
        self.delivered = _by_output(start.delivered)
        """By output: the items that an executor has sent before it died, as JSON. Only for executors that continue."""
        self.has_begun = False
        """Whether its caller has been sent anything."""
        self._outputs = frozenset(start.outputs)
        self._tensors = tensors
        self._send = send

    def wants(self, output: str) -> bool:
        """Whether anybody waits for this stream. What nobody wants need not be made."""
        return output in self._outputs

    async def send(self, output: str, item: bytes) -> None:
        """Sends the next item of a stream, or a value ahead of the end, as JSON. Waits while the caller is behind."""
        self.has_begun = True
        await self._send(output, item)

    async def receive(self, tensor: Tensor) -> TensorView:
        """The data of one of the request's tensors, as soon as it is there. It may be read until the invocation ends;
        `check` it after the last read.

        An invocation that waits here counts as one that has not begun: it must not hold what others need to go on.

        Raises `InputLostError`, which the caller has to hear of: do not catch it.
        """
        return await self._tensors.receive(tensor)

    async def receive_all(self, tensors: Sequence[Tensor]) -> list[TensorView]:
        """Several, which may arrive in any order; in the order asked for.

        Raises one `InputLostError` for all that are lost together.
        """
        return await self._tensors.receive_all(tensors)

    async def allocate(self, output: str, nbytes: int) -> Slot:
        """Room in shared memory for the tensor that becomes this output. Waits while there is none: older requests
        have theirs first.

        Write to `Slot.buffer`, then say by `Slot.publish` which dtype and shape it has, or `Slot.discard`.

        Args:
            nbytes: of the whole tensor.

        Raises:
            TensorTooLargeError: no request may ever have so much. Where it is not caught, the client is told so.
            SlabError: shared memory cannot be made.
            LostError: what the invocation has published has been taken back.
            TypeError: the executor's output has no `Tensor`.
        """
        return await self._tensors.allocate(output, nbytes)

    def reuse(self, output: str, key: str) -> bool:
        """Publishes the tensor that an earlier invocation has published under this key (`Slot.publish`). Returns
        whether it is still there."""
        return self._tensors.reuse(output, key)


def _by_output(chunks: Iterable[pb.OutputChunk]) -> Mapping[str, Sequence[bytes]]:
    items: dict[str, list[bytes]] = {}
    for chunk in chunks:
        items.setdefault(chunk.output, []).append(chunk.item)
    return items
