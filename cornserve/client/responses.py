"""Parses responses of the gateway into the values that clients return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json

from cornserve.app.costs import CostReport
from cornserve.app.event import AppEvent
from cornserve.app.overview import LiveApp, Overview
from cornserve.app.record import AppView, EngineTokens, ReplicaLog, UnreadableApp
from cornserve.app.run_record import RunRecord
from cornserve.client.errors import error_from_json, unexpected_response
from cornserve.client.sse import ServerSentEvent

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ResponseParser = Callable[[Any], T_co]
"""Converts a JSON document. Its exceptions mean that the server is not a Cornserve gateway."""


class LoadedModel(BaseModel):
    """An entry of `/v1/models`: the generation of an app that the gateway has loaded."""

    id: str
    uid: str
    generation: int


class StreamItem(NamedTuple):
    """The next item of one of a response's streams."""

    stream: str
    item: Any


class StreamResult(NamedTuple):
    """The response, after all items of its streams."""

    response: Any


class EventDecoder(Protocol[T_co]):
    """Decodes a stream of server-sent events."""

    @property
    def is_complete(self) -> bool:
        """Whether the last event has arrived. A stream that ends before the last event is truncated."""
        ...

    def decode(self, event: ServerSentEvent) -> Iterator[T_co]:
        """Yields the values in the event. Raises `ApiStatusError` for an error event."""
        ...


class InvocationDecoder:
    """Decodes the response of a native invocation."""

    is_complete = False

    def decode(self, event: ServerSentEvent) -> Iterator[StreamItem | StreamResult]:
        match event.name, from_json(event.data or "null"):
            case "item", {"stream": stream, "item": item}:
                yield StreamItem(stream, item)
            case "result", response:
                self.is_complete = True
                yield StreamResult(response)
            case "error", document:
                raise error_from_json(200, document, event.data)


class ChatDelta(NamedTuple):
    """The next part of the first choice of a chat completion: text, images as data URLs, or both."""

    text: str
    images: Sequence[str] = ()


class ChatDecoder:
    """Decodes a chat completion into the parts of its first choice."""

    is_complete = False

    def decode(self, event: ServerSentEvent) -> Iterator[ChatDelta]:
        if event.data == "[DONE]":
            self.is_complete = True
            return
        match from_json(event.data or "null"):
            case {"error": _} as document:
                raise error_from_json(200, document, event.data)
            case {"choices": [{"delta": {"images": list(images)}}, *_]}:
                yield ChatDelta("", [image["image_url"]["url"] for image in images])
            case {"choices": [{"delta": {"content": str(text)}}, *_]} if text:
                yield ChatDelta(text)


class TextDecoder:
    """Decodes a chat completion into chunks of text."""

    def __init__(self) -> None:
        self._chat = ChatDecoder()

    @property
    def is_complete(self) -> bool:
        return self._chat.is_complete

    def decode(self, event: ServerSentEvent) -> Iterator[str]:
        for delta in self._chat.decode(event):
            if delta.text:
                yield delta.text


COMPLETED_IMAGE = ("image_generation.completed", "image_edit.completed")
"""The types of the events that contain a completed image."""


class ImageDecoder:
    """Decodes the events of images as JSON.

    Args:
        images: the number of images. The stream is complete after the last one.
    """

    def __init__(self, images: int) -> None:
        self._missing = images
        self.is_complete = False

    def decode(self, event: ServerSentEvent) -> Iterator[dict[str, Any]]:
        document = from_json(event.data or "{}")
        if event.name == "error":
            raise error_from_json(200, document, event.data)
        self._missing -= document.get("type") in COMPLETED_IMAGE
        self.is_complete = self._missing == 0
        if document:
            yield document


def parse_response(url: str, content: bytes, parser: ResponseParser[T]) -> T:
    with unexpected_response(url):
        return parser(from_json(content or b"null"))


def decode_event(url: str, decoder: EventDecoder[T], event: ServerSentEvent) -> list[T]:
    with unexpected_response(url):
        return list(decoder.decode(event))


def json_document(document: Any) -> Any:
    return document


def run_record(document: Any) -> RunRecord:
    return RunRecord.model_validate(document)


def app_view(document: Any) -> AppView:
    return AppView.model_validate(document)


def app_views(document: Any) -> list[AppView]:
    return _APP_VIEWS.validate_python(document["apps"])


def unreadable_apps(document: Any) -> list[UnreadableApp]:
    return _UNREADABLE_APPS.validate_python(document["unreadable"])


def overview(document: Any) -> Overview:
    return Overview.model_validate(document)


def cost_report(document: Any) -> CostReport:
    return CostReport.model_validate(document)


def live_app(document: Any) -> LiveApp:
    return LiveApp.model_validate(document)


def engine_tokens(document: Any) -> dict[str, EngineTokens]:
    return _ENGINE_TOKENS.validate_python(document)


def replica_logs(document: Any) -> list[ReplicaLog]:
    return _REPLICA_LOGS.validate_python(document["replicas"])


def app_events(document: Any) -> list[AppEvent]:
    return _APP_EVENTS.validate_python(document["events"])


def model_ids(document: Any) -> list[str]:
    return [model["id"] for model in document["data"]]


def loaded_models(document: Any) -> list[LoadedModel]:
    return _LOADED_MODELS.validate_python(document["data"])


_APP_VIEWS = TypeAdapter(list[AppView])
_UNREADABLE_APPS = TypeAdapter(list[UnreadableApp])
_ENGINE_TOKENS = TypeAdapter(dict[str, EngineTokens])
_REPLICA_LOGS = TypeAdapter(list[ReplicaLog])
_APP_EVENTS = TypeAdapter(list[AppEvent])
_LOADED_MODELS = TypeAdapter(list[LoadedModel])
