"""The events of streamed completions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import TokenCounts
from cornserve_tasklib.chat_response import ChatChunk


class ChunkEvents:
    """Encodes the chunks of one completion as server-sent events.

    Args:
        object: OpenAI's name of the type of the chunks.
        with_usage: whether each chunk contains the usage of its choice so far.
    """

    def __init__(self, id: str, object: str, created: int, model: str, *, with_usage: bool = False) -> None:
        self._fields = {"id": id, "object": object, "created": created, "model": model}
        self._with_usage = with_usage
        self._counts: dict[int, TokenCounts] = {}

    @cached_property
    def _head(self) -> bytes:
        """The JSON that all chunks begin with."""
        return to_json(self._fields)[:-1] + b',"choices":['

    def count(self, index: int, chunk: ChatChunk) -> None:
        """Adds the tokens of a chunk to the usage of the choice `index`."""
        if not self._with_usage:
            return
        counts = self._usage(index)
        counts["prompt_tokens"] += chunk.prompt_tokens
        counts["completion_tokens"] += len(chunk.token_ids)
        counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]

    def choice(self, index: int, choice: BaseModel | Mapping[str, Any]) -> bytes:
        """Returns the event of a chunk of the choice `index`.

        As in OpenAI's API, `finish_reason` is null until the last chunk. Other fields without a value are left out.
        """
        return self._event(_encode_choice(choice), self._usage(index) if self._with_usage else None)

    def usage(self, usage: TokenCounts) -> bytes:
        """Returns the event of the last chunk, which contains the usage and no choice."""
        return self._event(b"", usage)

    def _usage(self, index: int) -> TokenCounts:
        return self._counts.setdefault(index, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})

    def _event(self, choice: bytes, usage: TokenCounts | None) -> bytes:
        tail = b"]}" if usage is None else b'],"usage":' + to_json(usage) + b"}"
        return sse.encode_event(self._head + choice + tail)


def _encode_choice(choice: BaseModel | Mapping[str, Any]) -> bytes:
    reason = choice.get("finish_reason") if isinstance(choice, Mapping) else getattr(choice, "finish_reason", None)
    encoded = to_json(choice, exclude_none=True)
    return encoded if reason is not None else encoded[:-1] + b',"finish_reason":null}'
