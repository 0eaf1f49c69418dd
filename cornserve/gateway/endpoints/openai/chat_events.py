"""The events of streamed chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import TokenCounts, encode_choices


class ChatEvents:
    """Encodes the chunks of one completion as server-sent events."""

    def __init__(self, id: str, created: int, model: str) -> None:
        head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = to_json(head)[:-1] + b',"choices":'

    def encode(self, choices: Sequence[Mapping[str, Any]], usage: TokenCounts | None = None) -> bytes:
        """Returns the event of one chunk."""
        tail = b"}" if usage is None else b',"usage":' + to_json(usage) + b"}"
        return sse.encode_event(self._head + encode_choices(choices) + tail)


DONE = sse.encode_event(b"[DONE]")
"""The last event of a stream."""
