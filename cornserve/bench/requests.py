"""Creates requests from a prompt, random words, a dataset, a workload, or an app's own requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, repeat
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import from_json

from cornserve.bench.server_api import ServerApi
from cornserve.client import calls
from cornserve.client.calls import ApiCall
from cornserve_plan.bounded_file import read_bounded, read_bounded_lines
from cornserve_tasklib.media import Modality

MAX_MIB = 256
"""Maximum size of a file of requests, which are kept in memory."""

MAX_LINES = 1_000_000
"""Maximum number of requests in a file."""

WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
)  # fmt: skip
"""Common words of about one token each."""


MODALITIES: dict[str, Modality] = {
    "image_url": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "video_url": "video",
}
"""The modality of each type of message part that contains a medium."""


MakeBody = Callable[[str], Mapping[str, Any]]
"""Returns the body of a request for a text."""


class RequestError(Exception):
    """The requests cannot be read or generated."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    call: ApiCall
    media: Mapping[Modality, int]
    """The number of media in a chat, by modality."""


@dataclass(frozen=True, slots=True)
class RequestSource:
    """Creates the requests of a run, without end."""

    app: str
    bodies: Iterator[Any]
    """Messages and options of chats, prompts and options of images, inputs and options of speech, or the app's own
    requests."""
    is_native: bool
    stream: bool
    """Whether chats and the app's own requests are streamed."""
    timeout: float
    server: ServerApi

    def __next__(self) -> BenchRequest:
        body = next(self.bodies)
        if not self.is_native:
            body = self.server.adapt(body)
        return BenchRequest(self._call(body), count_media(body))

    def _call(self, body: Any) -> ApiCall:
        if self.is_native:
            return calls.invoke(self.app, body, self.timeout, stream=self.stream)
        if "prompt" in body:
            options = {name: value for name, value in body.items() if name not in ("prompt", "image")}
            if "image" in body:
                return calls.edit_image(self.app, body["image"], body["prompt"], options, self.timeout, stream=False)
            return calls.generate_images(self.app, body["prompt"], options, self.timeout, stream=False)
        if "input" in body:
            options = {name: value for name, value in body.items() if name != "input"}
            return calls.speak(self.app, body["input"], options, self.timeout, events=self.server.streams_speech)
        options = {name: value for name, value in body.items() if name != "messages"}
        if self.stream:
            options["stream_options"] = {"include_usage": True}
        return calls.chat(self.app, body["messages"], options, self.timeout, stream=self.stream)


def prompts(text: str, make_body: MakeBody) -> Iterator[Any]:
    """Repeats one request. An engine may serve it from its prefix cache after the first request."""
    return repeat(make_body(text))


def random_prompts(words: int, make_body: MakeBody, random: Random) -> Iterator[Any]:
    """Yields requests that differ, so that they do not hit a prefix cache."""
    while True:
        yield make_body(random_text(words, random))


def random_text(words: int, random: Random) -> str:
    """Returns common words of about one token each, at least one."""
    return " ".join(random.choices(WORDS, k=max(1, words)))


def chat_body(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the messages and options of a chat."""
    return {"messages": [{"role": "user", "content": text}], **options}


def image_body(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the prompt and options of images."""
    return {"prompt": text, **options}


def speech_body(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input and options of speech."""
    return {"input": text, **options}


def dataset(path: Path, options: Mapping[str, Any]) -> Iterator[Any]:
    """Cycles through a file with one JSON object per line: `prompt` or `messages`, and options such as `max_tokens`."""
    return cycle([_chat(place, entry, options) for place, entry in _lines(path)])


def app_requests(path: Path) -> Iterator[Any]:
    """Repeats the request of a JSON file, or cycles through a file with one request per line (`.jsonl`)."""
    if path.suffix == ".jsonl":
        return cycle(read_requests(path))
    with _reading(path):
        text = read_bounded(path.expanduser(), MAX_MIB)
    return repeat(_json(text, str(path)))


def read_requests(path: Path) -> list[Any]:
    """Returns the requests of a file with one JSON request per line. Raises `RequestError`."""
    return [request for _, request in _lines(path)]


def count_media(body: Any) -> Counter[Modality]:
    """Returns the number of media in the messages of a request, by modality."""
    match body:
        case {"messages": list(messages)}:
            contents = [
                message["content"] for message in messages if isinstance(message, dict) and "content" in message
            ]
            parts = [part for content in contents if isinstance(content, list) for part in content]
            types = [part.get("type") for part in parts if isinstance(part, dict)]
            return Counter(MODALITIES[type] for type in types if type in MODALITIES)
        case {"prompt": _, "image": _}:
            return Counter(["image"])
    return Counter()


def _chat(place: str, entry: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    match entry:
        case {"messages": list()}:
            return {**options, **entry}
        case {"prompt": str(prompt)}:
            others = {name: value for name, value in entry.items() if name != "prompt"}
            return chat_body(prompt, {**options, **others})
    raise RequestError(f'{place}: expected {{"prompt": "…"}} or {{"messages": […]}}')


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the place and the JSON of each line that is not empty.

    Raises `RequestError` without any, for too many, for invalid JSON, or if reading fails.
    """
    found = 0
    with _reading(path):
        for number, content in enumerate(read_bounded_lines(path.expanduser(), MAX_MIB), start=1):
            if content.strip():
                found += 1
                if found > MAX_LINES:
                    raise RequestError(f"{path} has more than {MAX_LINES:,} requests: give fewer")
                place = f"{path}:{number}"
                yield place, _json(content, place)
    if not found:
        raise RequestError(f"{path} is empty: write at least one request to it")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: "~" of an unknown user.
        raise RequestError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _json(text: str | bytes, source: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise RequestError(f"{source}: invalid JSON: {error}") from error
