"""The form in which a request travels to an app host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from cornserve.app.image_slots import ImageSlot
from cornserve.app.operations import REQUEST_TYPES
from cornserve.gateway.play.player import PlaySettings
from cornserve.task import Blob
from cornserve.task.references import ReferenceEncoder
from cornserve.v1 import app_host_pb2 as pb


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """The body of a native call, of which only the host knows the type."""

    body: bytes
    images: Sequence[ImageSlot]


def begin_session(settings: PlaySettings, random_index: int, requests: Sequence[Any]) -> pb.BeginSession:
    """Returns the first message about a request. `requests` are one `NativeRequest` or requests of OpenAI's API."""
    encoder = ReferenceEncoder()
    begin = pb.BeginSession(request_id=settings.request_id, path=settings.path, random_index=random_index)
    for request in requests:
        if isinstance(request, NativeRequest):
            begin.request_type = "native"
            begin.requests.append(request.body)
            begin.images.extend(_encode(slot.image, encoder) for slot in request.images)
        else:
            begin.request_type = next(name for name, kind in REQUEST_TYPES.items() if isinstance(request, kind))
            begin.requests.append(_encode(request, encoder))
    begin.blobs.extend(value.data for value in encoder.inputs if isinstance(value, Blob))
    return begin


def _encode(value: BaseModel, encoder: ReferenceEncoder) -> bytes:
    # Only the fields that the client has set: the host finds out which of them the task does not use.
    return value.__pydantic_serializer__.to_json(value, context=encoder, exclude_unset=True)
