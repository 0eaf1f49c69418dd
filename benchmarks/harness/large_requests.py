"""The large requests of `benchmarks/large_bodies.py`."""

from __future__ import annotations

import io
import random
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from PIL import Image
from pydantic_core import to_json

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"

MB = 1_000_000

Request = tuple[str, bytes]
"""Path and body."""


def large_requests(model: str) -> Mapping[str, Callable[[], Request]]:
    """Returns functions that create the requests, by a description."""
    return {
        **{f"text, {size} MB": partial(_text, "hello world ", size, model) for size in (0.5, 4, 7, 60)},
        "text, 7 MB, not ASCII": lambda: _text("héllo 世界 ", 7, model),
        "text, 7 MB, escaped": lambda: (CHAT, _chat(model, "{}").replace(b"{}", rb"\n\u4e16" * (7 * MB // 8))),
        "4,096 messages, 7 MB": lambda: (CHAT, _chat(model, *["hello world " * 140] * 4096)),
        "90,000 unknown fields": lambda: (CHAT, to_json({f"field{number}": 1 for number in range(90_000)})),
        "90,000 invalid parts": lambda: (CHAT, to_json(_fields(model) | {"messages": [_message([1] * 90_000)]})),
        "90,000 nested arrays": lambda: (CHAT, b'{"model":' + b"[" * 90_000),
        "90,000 token ids": lambda: (COMPLETIONS, _completion(model, list(range(90_000)))),
        "2,048 inputs, 7 MB": lambda: (EMBEDDINGS, _embedding(model, ["hello world " * 290] * 2048)),
        "tools, 7 MB": lambda: (CHAT, to_json(_fields(model) | {"messages": [_message("hello")], "tools": _tools()})),
        "image, 20 MB": lambda: (CHAT, _images(model, 1, 2580)),
        "3 images, 45 MB": lambda: (CHAT, _images(model, 3, 2230)),
        "64 images, 45 MB": lambda: (CHAT, _images(model, 64, 480)),
    }


def small_request(model: str) -> Request:
    return CHAT, _chat(model, "hello world")


def _fields(model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 1}


def _message(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _chat(model: str, *contents: object) -> bytes:
    return to_json(_fields(model) | {"messages": [_message(content) for content in contents]})


def _text(words: str, megabytes: float, model: str) -> Request:
    return CHAT, _chat(model, words * int(megabytes * MB / len(words.encode())))


def _completion(model: str, prompt: object) -> bytes:
    return to_json(_fields(model) | {"prompt": prompt})


def _embedding(model: str, texts: object) -> bytes:
    return to_json({"model": f"{model}-embeddings", "input": texts})


def _tools() -> list[dict[str, Any]]:
    properties = {f"parameter{number}": {"type": "string", "description": "words " * 60} for number in range(150)}
    parameters = {"type": "object", "properties": properties}
    return [
        {"type": "function", "function": {"name": f"tool{number}", "parameters": parameters}} for number in range(120)
    ]


def _images(model: str, count: int, side: int) -> bytes:
    file = io.BytesIO()
    noise = random.Random(0).randbytes(side * side * 3)
    Image.frombytes("RGB", (side, side), noise).save(file, "PNG", compress_level=0)
    url = "data:image/png;base64," + b64encode(file.getvalue()).decode()
    return _chat(model, [{"type": "image_url", "image_url": {"url": url}}] * count)
