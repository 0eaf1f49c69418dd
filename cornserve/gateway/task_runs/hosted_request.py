"""The form in which a request travels to an app host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from cornserve.app.media_slots import MediaSlot
from cornserve.app.operations import REQUEST_TYPES
from cornserve.app.unused_fields import optional_fields_of
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.task import Blob
from cornserve.task.references import ReferenceEncoder
from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.bytes_fields import encode_bytes_field, field_path

_REQUESTS = {kind: field_path(pb.HostCommand, kind, "begin", "requests") for kind in ("classify", "run")}
_BLOBS = {kind: field_path(pb.HostCommand, kind, "begin", "blobs") for kind in ("classify", "run")}


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """The body of a native call, of which only the host knows the type."""

    body: bytes
    media: Sequence[MediaSlot]


class BeginCommand:
    """The first message about a request. Its JSON and its blobs are encoded without copying them.

    Args:
        requests: one `NativeRequest`, or requests of OpenAI's API.
    """

    __slots__ = ("_requests", "blobs", "message")

    def __init__(self, settings: RunSettings, random_index: int, requests: Sequence[Any]) -> None:
        encoder = ReferenceEncoder()
        begin = pb.BeginSession(random_key=settings.random_key, random_index=random_index)
        self._requests: list[bytes] = []
        for request in requests:
            if isinstance(request, NativeRequest):
                begin.request_type = "native"
                self._requests.append(request.body)
                begin.media.extend(_encode(slot.media, encoder) for slot in request.media)
            else:
                begin.request_type = next(name for name, kind in REQUEST_TYPES.items() if isinstance(request, kind))
                begin.optional_fields.extend(optional_fields_of(request) - {*begin.optional_fields})
                self._requests.append(_encode(request, encoder))
        self.message = begin
        self.blobs = [value.data for value in encoder.inputs if isinstance(value, Blob)]

    def encode_contents(self, kind: Literal["classify", "run"]) -> list[bytes]:
        """Returns the encoding of a command with the fields that `message` lacks, in parts."""
        requests = [(_REQUESTS[kind], request) for request in self._requests]
        fields = requests + [(_BLOBS[kind], blob) for blob in self.blobs]
        return [part for path, content in fields for part in encode_bytes_field(path, content)]


def _encode(value: BaseModel, encoder: ReferenceEncoder) -> bytes:
    # Only the fields that the client has set: the host finds out which of them the task does not use.
    return value.__pydantic_serializer__.to_json(value, context=encoder, exclude_unset=True)
