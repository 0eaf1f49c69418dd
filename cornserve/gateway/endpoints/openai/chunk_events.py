"""The events of streamed completions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import TokenCounts
from cornserve_tasklib.chat_response import ChatChunk, FinishReason


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

    def choice(
        self, index: int, choice: BaseModel | Mapping[str, Any], finish_reason: FinishReason | None = None
    ) -> bytes:
        """Returns the event of a chunk of the choice `index`.

        As in OpenAI's API, `finish_reason` is null until the last chunk. Other fields without a value are left out.

        Args:
            choice: the other fields of the choice.
        """
        fields = to_json(choice, exclude_none=True)[:-1]
        reason = b"null" if finish_reason is None else to_json(finish_reason)
        usage = b',"usage":' + to_json(self._usage(index)) if self._with_usage else b""
        return sse.encode_event(b'%b%b,"finish_reason":%b}]%b}' % (self._head, fields, reason, usage))

    def usage(self, usage: TokenCounts) -> bytes:
        """Returns the event of the last chunk, which contains the usage and no choice."""
        return sse.encode_event(b'%b],"usage":%b}' % (self._head, to_json(usage)))

    def _usage(self, index: int) -> TokenCounts:
        return self._counts.setdefault(index, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
