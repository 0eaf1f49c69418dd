"""The events of a streamed response of `/v1/responses`."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, Literal

from cornserve.app.response_readers import Ending
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.response_objects import (
    ItemStatus,
    OutputItem,
    ResponseObject,
    call_item,
    custom_call_item,
    end_response,
    last_status,
    message_item,
    reasoning_item,
)
from cornserve.gateway.errors import ApiError
from cornserve_tasklib.chat_response import ChatChunk, ToolCallDelta

Kind = Literal["reasoning", "text"]
_KINDS: tuple[Kind, ...] = ("reasoning", "text")

Event = tuple[str, dict[str, Any]]
"""The type of an event and its fields."""


class ContentItem:
    """An item whose text is generated: a message or reasoning."""

    def __init__(self, id: str, index: int, kind: Kind) -> None:
        self._name = "output_text" if kind == "text" else "reasoning_text"
        self.kind = kind
        self.item: Any = message_item(id, index, "") if kind == "text" else reasoning_item(id, index, "")
        self._part: Any = self.item["content"][0]
        self._place = {"item_id": self.item["id"], "output_index": index}
        self._part_place = {**self._place, "content_index": 0}
        self._logprobs: dict[str, Any] = {"logprobs": []} if kind == "text" else {}
        self._texts: list[str] = []

    def begin(self) -> Iterator[Event]:
        added = {**self.item, "status": "in_progress", "content": []}
        yield "response.output_item.added", {"output_index": self._place["output_index"], "item": added}
        yield "response.content_part.added", {**self._part_place, "part": self._part}

    def add(self, text: str) -> Event:
        self._texts.append(text)
        return f"response.{self._name}.delta", {**self._part_place, "delta": text, **self._logprobs}

    def end(self, status: ItemStatus) -> Iterator[Event]:
        text = self._part["text"] = "".join(self._texts)
        self.item["status"] = status
        yield f"response.{self._name}.done", {**self._part_place, "text": text, **self._logprobs}
        yield "response.content_part.done", {**self._part_place, "part": self._part}
        yield "response.output_item.done", {"output_index": self._place["output_index"], "item": self.item}


class CallItem:
    """A function call whose arguments are generated."""

    def __init__(self, id: str, index: int, first: ToolCallDelta) -> None:
        self.item = call_item(id, index, first.id or "", first.name or "", "")
        self._index = index
        self._place = {"item_id": self.item["id"], "output_index": index}
        self._arguments: list[str] = []

    def begin(self) -> Iterator[Event]:
        item = {**self.item, "status": "in_progress"}
        yield "response.output_item.added", {"output_index": self._index, "item": item}

    def add(self, arguments: str) -> Event:
        self._arguments.append(arguments)
        return "response.function_call_arguments.delta", {**self._place, "delta": arguments}

    def end(self, status: ItemStatus) -> Iterator[Event]:
        arguments = self.item["arguments"] = "".join(self._arguments)
        self.item["status"] = status
        done = {**self._place, "name": self.item["name"], "arguments": arguments}
        yield "response.function_call_arguments.done", done
        yield "response.output_item.done", {"output_index": self._index, "item": self.item}


class CustomItem:
    """A call of a custom tool, whose input is sent when it is complete."""

    def __init__(self, id: str, index: int, first: ToolCallDelta) -> None:
        self._id = id
        self._index = index
        self._arguments: list[str] = []
        self.item = custom_call_item(id, index, first.id or "", first.name or "", "")

    def begin(self) -> Iterator[Event]:
        item = {**self.item, "status": "in_progress"}
        yield "response.output_item.added", {"output_index": self._index, "item": item}

    def add(self, arguments: str) -> None:
        self._arguments.append(arguments)

    def end(self, status: ItemStatus) -> Iterator[Event]:
        call_id, name = self.item["call_id"], self.item["name"]
        self.item = custom_call_item(self._id, self._index, call_id, name, "".join(self._arguments))
        self.item["status"] = status
        place = {"item_id": self.item["id"], "output_index": self._index}
        yield "response.custom_tool_call_input.delta", {**place, "delta": self.item["input"]}
        yield "response.custom_tool_call_input.done", {**place, "input": self.item["input"]}
        yield "response.output_item.done", {"output_index": self._index, "item": self.item}


class ResponseEvents:
    """Converts the chunks of a chat to the events of a response.

    An item ends when another one begins. Only calls last until the end, as their parts may alternate.
    """

    def __init__(self, id: str, response: ResponseObject, custom_tools: Container[str]) -> None:
        self._id = id
        self._response = response
        self._custom_tools = custom_tools
        self._sent = 0
        """The number of events."""
        self._items: list[ContentItem | CallItem | CustomItem] = []
        self._content: ContentItem | None = None
        """The message or the reasoning that has not ended."""
        self._calls: dict[int, CallItem | CustomItem] = {}
        """The calls by their index in the chat."""

    def add(self, chunks: Sequence[ChatChunk]) -> bytes:
        """Returns the events of the first choice in the chunks, or b"" without events."""
        events = self._first_events()
        events += [event for chunk in chunks if chunk.index == 0 for event in self._chunk_events(chunk)]
        return self._encode(events)

    def end(self, ending: Ending) -> bytes:
        reason = ending.finish_reasons[0]
        events = self._first_events()
        if not self._items:
            events += self._begin_content("text")
        events += [event for item in self._open_items() for event in item.end(self._status(item, last_status(reason)))]
        self._response["output"] = self._output()
        end_response(self._response, reason, ending.usage)
        events.append((f"response.{self._response['status']}", {"response": self._response}))
        return self._encode(events)

    def fail(self, error: ApiError) -> bytes:
        """Returns the last event of a response that has failed. It contains the items so far."""
        for item in self._open_items():
            for _ in item.end("incomplete"):
                pass
        code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"] = "server_error"
        if error.status < 500:
            code = "rate_limit_exceeded" if error.status == 429 else "invalid_prompt"
        self._response["output"] = self._output()
        self._response["status"] = "failed"
        self._response["error"] = {"code": code, "message": error.body.error.message}
        return self._encode([("response.failed", {"response": self._response})])

    def _first_events(self) -> list[Event]:
        if self._sent:
            return []
        return [(f"response.{name}", {"response": self._response}) for name in ("created", "in_progress")]

    def _chunk_events(self, chunk: ChatChunk) -> Iterator[Event]:
        for kind in _KINDS:
            if text := (chunk.reasoning if kind == "reasoning" else chunk.text):
                if self._content is None or self._content.kind != kind:
                    yield from self._end_content()
                    yield from self._begin_content(kind)
                assert self._content is not None
                yield self._content.add(text)
        for call in chunk.tool_calls or ():
            yield from self._call_events(call)

    def _call_events(self, delta: ToolCallDelta) -> Iterator[Event]:
        call = self._calls.get(delta.index)
        if call is None:
            yield from self._end_content()
            kind = CustomItem if delta.name in self._custom_tools else CallItem
            call = self._calls[delta.index] = kind(self._id, len(self._items), delta)
            self._items.append(call)
            yield from call.begin()
        if delta.arguments and (event := call.add(delta.arguments)) is not None:
            yield event

    def _begin_content(self, kind: Kind) -> Iterator[Event]:
        self._content = ContentItem(self._id, len(self._items), kind)
        self._items.append(self._content)
        yield from self._content.begin()

    def _end_content(self) -> Iterator[Event]:
        if self._content is not None:
            content, self._content = self._content, None
            yield from content.end("completed")

    def _open_items(self) -> list[ContentItem | CallItem | CustomItem]:
        return [item for item in self._items if not isinstance(item, ContentItem) or item is self._content]

    def _status(self, item: ContentItem | CallItem | CustomItem, last: ItemStatus) -> ItemStatus:
        return last if item is self._items[-1] else "completed"

    def _output(self) -> list[OutputItem]:
        return [item.item for item in self._items]

    def _encode(self, events: Sequence[Event]) -> bytes:
        return b"".join([self._encode_event(*event) for event in events])

    def _encode_event(self, type: str, fields: dict[str, Any]) -> bytes:
        event = sse.encode_typed_event(type, {"sequence_number": self._sent, **fields})
        self._sent += 1
        return event
