"""Removes what was delivered of a choice that another executor generates again from its start.

Chunks may be divided differently than before. Texts, tokens and arguments must be equal. Log probabilities may differ
by rounding, because other requests share the engine's batches, and the ids of tool calls are those that were delivered.
"""

from __future__ import annotations

from collections.abc import Sequence

from cornserve_executors.base import NotRepeatedError
from cornserve_executors.base.repeated_output import strip_delivered
from cornserve_tasklib.chat_response import ChatChunk, ToolCallDelta


class RepeatedChoice:
    """The delivered part of a choice that has not been generated again."""

    def __init__(self, delivered: Sequence[ChatChunk]) -> None:
        self._text = "".join([chunk.text for chunk in delivered])
        self._reasoning = "".join([chunk.reasoning for chunk in delivered])
        self._token_ids = [token for chunk in delivered for token in chunk.token_ids]
        self._logprobs = sum(len(chunk.logprobs or ()) for chunk in delivered)
        """The number of delivered log probabilities."""
        self._names: dict[int, str] = {}
        self._arguments: dict[int, str] = {}
        """Names and arguments of the calls whose ids were delivered."""
        for delta in (delta for chunk in delivered for delta in chunk.tool_calls or ()):
            self._names.setdefault(delta.index, delta.name or "")
            self._arguments[delta.index] = self._arguments.get(delta.index, "") + (delta.arguments or "")

    def remove_delivered(self, chunk: ChatChunk) -> None:
        """Removes what was delivered from the next chunk. Raises `NotRepeatedError` if it differs."""
        chunk.text, self._text = strip_delivered(chunk.text, self._text)
        chunk.reasoning, self._reasoning = strip_delivered(chunk.reasoning, self._reasoning)
        chunk.token_ids, self._token_ids = strip_delivered(chunk.token_ids, self._token_ids)
        if chunk.tool_calls is not None:
            chunk.tool_calls = [part for delta in chunk.tool_calls if (part := self._new_part(delta))] or None
        if chunk.logprobs is not None:
            count = len(chunk.logprobs)
            chunk.logprobs = chunk.logprobs[self._logprobs :] or None
            self._logprobs = max(0, self._logprobs - count)

    def _new_part(self, delta: ToolCallDelta) -> ToolCallDelta | None:
        if delta.index not in self._names:
            return delta
        if delta.name is not None and delta.name != self._names[delta.index]:
            raise NotRepeatedError
        arguments, self._arguments[delta.index] = strip_delivered(delta.arguments or "", self._arguments[delta.index])
        return ToolCallDelta(index=delta.index, arguments=arguments) if arguments else None

    def check_complete(self) -> None:
        """Raises `NotRepeatedError` if the choice ended before all that was delivered."""
        if self._text or self._reasoning or self._token_ids or any(self._arguments.values()):
            raise NotRepeatedError
