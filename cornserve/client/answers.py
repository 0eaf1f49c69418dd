"""What the gateway answers, as clients give it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json

from cornserve.app.record import AppView, ReplicaLog
from cornserve.client.errors import told, understood
from cornserve.client.events import Event

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Reader = Callable[[Any], T_co]
"""Makes of a JSON document what a client gives. What it raises means that the other side is no gateway."""


class Served(BaseModel):
    """A model as the gateway lists it: which version of which app it has loaded."""

    id: str
    uid: str
    generation: int


class Item(NamedTuple):
    """The next item of one of a response's streams."""

    stream: str
    item: Any


class Result(NamedTuple):
    """The response, once it is complete."""

    response: Any


class Pieces(Protocol[T_co]):
    """Reads a stream of events."""

    is_complete: bool
    """Nothing more is to come. A stream that ends before was cut."""

    def take(self, event: Event) -> Iterator[T_co]:
        """What the event brings. Raises the error that it tells."""
        ...


class ResponsePieces:
    """Of a native invocation."""

    is_complete = False

    def take(self, event: Event) -> Iterator[Item | Result]:
        match event.name, from_json(event.data or "null"):
            case "item", {"stream": stream, "item": item}:
                yield Item(stream, item)
            case "result", response:
                self.is_complete = True
                yield Result(response)
            case "error", answer:
                raise told(200, answer, event.data)


class ChatPieces:
    """Of a chat's answer, as text."""

    is_complete = False

    def take(self, event: Event) -> Iterator[str]:
        if event.data == "[DONE]":
            self.is_complete = True
            return
        match from_json(event.data or "null"):
            case {"error": _} as answer:
                raise told(200, answer, event.data)
            case {"choices": [{"delta": {"content": str(text)}}, *_]} if text:
                yield text


def read(url: str, content: bytes, reader: Reader[T]) -> T:
    with understood(url):
        return reader(from_json(content or b"null"))


def taken(url: str, pieces: Pieces[T], event: Event) -> list[T]:
    with understood(url):
        return list(pieces.take(event))


def document(answer: Any) -> Any:
    """As it is."""
    return answer


def view(answer: Any) -> AppView:
    return AppView.model_validate(answer)


def views(answer: Any) -> list[AppView]:
    return _VIEWS.validate_python(answer["apps"])


def replica_logs(answer: Any) -> list[ReplicaLog]:
    return _LOGS.validate_python(answer["replicas"])


def models(answer: Any) -> list[str]:
    return [model["id"] for model in answer["data"]]


def served(answer: Any) -> list[Served]:
    return _SERVED.validate_python(answer["data"])


_VIEWS = TypeAdapter(list[AppView])
_LOGS = TypeAdapter(list[ReplicaLog])
_SERVED = TypeAdapter(list[Served])
