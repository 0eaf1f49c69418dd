"""What is sent: chats of a prompt, of random words or of a dataset, or an app's own requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, repeat
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import from_json

from cornserve.client import calls
from cornserve.client.calls import ApiCall

WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money",
)  # fmt: skip
"""Common ones, which tokenizers know: about one token each."""


class RequestError(Exception):
    """There is nothing that could be sent; the message says why."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one run, without end."""

    app: str
    bodies: Iterator[Any]
    """For a chat: its messages and options."""
    is_chat: bool
    stream: bool
    timeout: float

    def __next__(self) -> ApiCall:
        body = next(self.bodies)
        if not self.is_chat:
            return calls.invoke(self.app, body, self.timeout, stream=self.stream)
        options = {name: value for name, value in body.items() if name != "messages"}
        if self.stream:
            options["stream_options"] = {"include_usage": True}
        return calls.chat(self.app, body["messages"], options, self.timeout, stream=self.stream)


def prompts(text: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """The same again and again: after the first, an engine may have it in its cache."""
    return repeat(_chat(text, options))


def random_prompts(words: int, options: Mapping[str, Any], random: Random) -> Iterator[Any]:
    """All different, so that no cache of prefixes makes them cheap."""
    while True:
        yield _chat(" ".join(random.choices(WORDS, k=words)), options)


def dataset(path: Path, options: Mapping[str, Any]) -> Iterator[Any]:
    """Of a file with a JSON object per line: `prompt` or `messages`, and options of its own such as `max_tokens`."""
    return cycle([_line(path, number, entry, options) for number, entry in _lines(path)])


def own(path: Path) -> Iterator[Any]:
    """The app's own requests: one, of a JSON file; or in turn those of a file with one per line (`.jsonl`)."""
    if path.suffix == ".jsonl":
        return cycle([entry for _, entry in _lines(path)])
    return repeat(_json(_text(path), str(path)))


def _chat(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **options}


def _line(path: Path, number: int, entry: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    match entry:
        case {"messages": list()}:
            return {**options, **entry}
        case {"prompt": str(prompt)}:
            own_options = {name: value for name, value in entry.items() if name != "prompt"}
            return _chat(prompt, {**options, **own_options})
    raise RequestError(f'{path}:{number}: neither {{"prompt": "…"}} nor {{"messages": […]}}')


def _lines(path: Path) -> Sequence[tuple[int, Any]]:
    lines = enumerate(_text(path).splitlines(), start=1)
    found = [(number, _json(line, f"{path}:{number}")) for number, line in lines if line.strip()]
    if not found:
        raise RequestError(f"{path} is empty")
    return found


def _text(path: Path) -> str:
    try:
        return path.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _json(text: str, place: str) -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise RequestError(f"{place}: no JSON: {error}") from error
