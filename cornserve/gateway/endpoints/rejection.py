"""The response to a request that an executor has rejected."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from cornserve.app.media_slots import MediaSlot
from cornserve.gateway.errors import ApiError

_PATH = re.compile(r"(\w+)(?:\.\w+|\[\d+\])*(?=: )")
"""The path of a field at the start of a message."""

_CONTEXT_LENGTH = re.compile(r"maximum context length is \d+")
"""A part of the messages about requests that exceed the context length, those of vLLM included."""


def rejection(message: str, fields: Container[str], media: Sequence[MediaSlot]) -> ApiError:
    """Returns a 400 that names the field or the medium with whose path the message begins.

    Args:
        fields: the fields of the request. Messages may begin with other words.
        media: the media of the request.
    """
    found = _PATH.match(message)
    too_long = "context_length_exceeded" if _CONTEXT_LENGTH.search(message) else None
    if found is None:
        return ApiError(400, message, code=too_long)
    path = found[0]
    for slot in media:
        if slot.path == path:
            described = f"{slot.param}{message.removeprefix(path)}"
            return ApiError(400, described, param=slot.param, code=f"invalid_{slot.media.modality}")
    if found[1] not in fields:
        return ApiError(400, message, code=too_long)
    return ApiError(400, message, param=path, code=too_long or "invalid_value")
