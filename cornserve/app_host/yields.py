"""The values and streams that the task of a request has yielded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from cornserve.app.response_readers import YieldReader, encode_item
from cornserve.task import Stream
from cornserve.v1 import app_host_pb2 as pb

Mapped = list[AsyncIterator[Sequence[Any]]]


class Yields:
    """Describes each yielded value.

    Args:
        mapped: receives the streams whose items the app computes.
    """

    def __init__(self, reader: YieldReader[Any], mapped: Mapped) -> None:
        self._reader = reader
        self._mapped = mapped
        self._described: list[pb.Yielded] = []
        self._sent = 0

    def add(self, value: Any) -> None:
        self._described.append(self._describe(self._reader.read(value)))

    def _describe(self, read: Stream[Any] | Sequence[Any]) -> pb.Yielded:
        if not isinstance(read, Stream):
            return pb.Yielded(items=map(encode_item, read))
        described = pb.Yielded()
        describe_stream(described.stream, read, self._mapped)
        return described

    def take_new(self) -> list[pb.Yielded]:
        """Returns what has been added since the last call."""
        new = self._described[self._sent :]
        self._sent = len(self._described)
        return new

    @property
    def has_any(self) -> bool:
        return bool(self._described)


def describe_stream(described: pb.ResultStream, stream: Stream[Any], mapped: Mapped) -> None:
    """Sets the origin of a stream, or adds a stream whose items the app computes to `mapped`.

    Raises `ReleasedOutputError` if the stream belongs to an earlier request.
    """
    stream.check_released()
    if stream.origin is not None:
        described.origin.invocation, described.origin.output = stream.origin
    else:
        described.mapped = len(mapped)
        if (source := stream.mapped_from) is not None:
            described.mapped_from.invocation, described.mapped_from.output = source
        mapped.append(stream.batches())
