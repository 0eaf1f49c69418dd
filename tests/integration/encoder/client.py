"""A caller and a consumer of an encoder executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cornserve.task.references import Blob, ReferenceEncoder
from cornserve.transport import TensorId, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib.media import EncodedMedia, Image
from tests import executor_caller


class EncoderCaller:
    """Sends images as a gateway does, all over one connection."""

    def __init__(self, name: str, endpoint: str, caller: executor_caller.Caller) -> None:
        self._name = name
        self._endpoint = endpoint
        self._caller = caller
        self._calls = 0

    def send(self, *images: Image) -> list[TensorId]:
        """Sends each image as a separate request. Returns the ids of the embeddings."""
        return [self._send(image, self._calls + 1, f"{self._name}-{self._calls + 1}", 0) for image in images]

    def send_together(self, *images: Image) -> list[TensorId]:
        """Sends all images as one request. Returns the ids of the embeddings."""
        arrived = self._calls
        return [self._send(image, arrived, self._name, invocation) for invocation, image in enumerate(images)]

    def _send(self, image: Image, arrived_us: int, request_id: str, invocation: int) -> TensorId:
        self._calls += 1
        start = _start(request_id, invocation, arrived_us, image)
        self._caller.send(pb.Command(call=self._calls, start=start))
        return TensorId(self._endpoint, request_id, invocation, 0, "embeddings")

    async def end_events(self, count: int) -> list[pb.End]:
        """Returns the end events of `count` invocations, in the order in which they were sent."""
        ended: dict[int, pb.End] = {}
        while len(ended) < count:
            event = await self._caller.read()
            assert event is not None
            ended[event.call] = event.end
        return [ended[call] for call in sorted(ended)]

    def release_all(self) -> None:
        for call in range(1, self._calls + 1):
            self._caller.send(pb.Command(call=call, release=pb.Release()))


@asynccontextmanager
async def calling(name: str, endpoint: str) -> AsyncIterator[EncoderCaller]:
    async with executor_caller.calling(endpoint) as caller:
        yield EncoderCaller(name, endpoint, caller)


async def read_embeddings(transport: Transport, tensor: TensorId) -> tuple[bytes, EncodedMedia]:
    """Returns a copy of the embeddings and their metadata."""
    async with transport.consume(tensor) as received:
        data = bytes(received.view)
        received.check()
        assert len(data) == received.shape[0] * received.shape[1] * 4
        return data, EncodedMedia.model_validate_json(received.metadata)


def _start(request_id: str, invocation: int, arrived_us: int, image: Image) -> pb.Start:
    edges = ReferenceEncoder()
    request = image.model_dump_json(context=edges).encode()
    blobs = [pb.Input(inline=blob.data) for blob in edges.inputs if isinstance(blob, Blob)]
    return pb.Start(request_id=request_id, invocation=invocation, request=request, inputs=blobs, arrived_us=arrived_us)
