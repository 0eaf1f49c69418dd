"""The events of a streamed message of `/v1/messages`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic_core import to_json

from cornserve.app.response_readers import Ending
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.anthropic.message_objects import (
    Content,
    MessageObject,
    message_usage,
    stop_reason,
)
from cornserve_tasklib.chat_response import ChatChunk, ToolCallDelta, Usage

Kind = Literal["thinking", "text"]
_DELTAS: dict[Kind, str] = {"thinking": "thinking_delta", "text": "text_delta"}

Event = dict[str, Any]


class MessageEvents:
    """Converts the chunks of a chat to the events of a message. A block ends when another one begins."""

    def __init__(self, message: MessageObject) -> None:
        self._message = message
        self._is_started = False
        self._blocks = 0
        """The number of blocks that have begun."""
        self._open: Kind | int | None = None
        """The kind of the open block, or the index of its call."""
        self._has_calls = False

    def add(self, chunks: Sequence[ChatChunk]) -> bytes:
        """Returns the events of the first choice in the chunks, or b"" without events."""
        return _encode([event for chunk in chunks if chunk.index == 0 for event in self._chunk_events(chunk)])

    def end(self, ending: Ending) -> bytes:
        """Returns the last events."""
        stop_sequence = ending.stop_sequences[0]
        delta = {
            "stop_reason": stop_reason(ending.finish_reasons[0], stop_sequence, has_calls=self._has_calls),
            "stop_sequence": stop_sequence,
        }
        events = [
            *self._start(Usage()),
            *self._end_block(),
            {"type": "message_delta", "delta": delta, "usage": message_usage(ending.usage)},
            {"type": "message_stop"},
        ]
        return _encode(events)

    def _start(self, usage: Usage) -> Iterator[Event]:
        if not self._is_started:
            self._is_started = True
            yield {"type": "message_start", "message": {**self._message, "usage": message_usage(usage)}}

    def _chunk_events(self, chunk: ChatChunk) -> Iterator[Event]:
        yield from self._start(Usage(prompt_tokens=chunk.prompt_tokens))
        if chunk.reasoning:
            yield from self._content_events("thinking", chunk.reasoning)
        if chunk.text:
            yield from self._content_events("text", chunk.text)
        for call in chunk.tool_calls or ():
            yield from self._call_events(call)

    def _content_events(self, kind: Kind, text: str) -> Iterator[Event]:
        if self._open != kind:
            begun: Content = {"type": "text", "text": ""}
            if kind == "thinking":
                begun = {"type": "thinking", "thinking": "", "signature": ""}
            yield from self._begin_block(kind, begun)
        yield self._delta({"type": _DELTAS[kind], kind: text})

    def _call_events(self, call: ToolCallDelta) -> Iterator[Event]:
        if self._open != call.index:
            self._has_calls = True
            yield from self._begin_block(
                call.index, {"type": "tool_use", "id": call.id or "", "name": call.name or "", "input": {}}
            )
        if call.arguments:
            yield self._delta({"type": "input_json_delta", "partial_json": call.arguments})

    def _begin_block(self, opened: Kind | int, block: Content) -> Iterator[Event]:
        yield from self._end_block()
        self._open = opened
        self._blocks += 1
        yield {"type": "content_block_start", "index": self._blocks - 1, "content_block": block}

    def _end_block(self) -> Iterator[Event]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._blocks - 1}

    def _delta(self, delta: dict[str, str]) -> Event:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}


def _encode(events: Sequence[Event]) -> bytes:
    return b"".join([sse.encode_event(to_json(event), event["type"]) for event in events])
