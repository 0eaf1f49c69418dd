"""Chats that are generated from a workload, for `cornserve bench` and `cornserve profile`."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import PIL.Image
import pytest
import soundfile

from cornserve.bench.requests import RequestError
from cornserve.bench.workload_chats import GeneratedChat, workload_chats
from cornserve.profiler.request_templates import MAX_TEMPLATES, workload_templates
from cornserve_tasklib import ChatRequest

HEADER = {"format": "cornserve-planner/requests", "version": 1}


def workload(directory: Path, *requests: dict[str, Any]) -> Path:
    file = directory / "requests.jsonl"
    lines = [{"arrival": float(number), **request} for number, request in enumerate(requests)]
    file.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *lines)))
    return file


def test_chats_have_the_sizes_of_the_workload(tmp_path: Path) -> None:
    images, audios = [{"width": 64, "height": 48}, {"tokens": 9}], [{"seconds": 1.5}, {"tokens": 5}]
    first_line = {"text_tokens": 12, "images": images, "audios": audios, "output_tokens": 7}
    file = workload(tmp_path, first_line, {"text_tokens": 3})
    first, second = workload_chats(file)
    assert first == GeneratedChat(words=12, images=((64, 48), (84, 84)), output_tokens=7, audios=(1.5, 0.2))
    assert second == GeneratedChat(words=3, images=(), output_tokens=0)

    body = json.loads(first.make(Random(0)))
    *media, text = body["messages"][0]["content"]
    assert (len(text["text"].split()), body["max_tokens"], body["ignore_eos"]) == (12, 7, True)
    data = [b64decode(part[part["type"]]["url"].partition(",")[2]) for part in media]
    assert [PIL.Image.open(io.BytesIO(file)).convert("RGB").size for file in data[:2]] == [(64, 48), (84, 84)]
    assert [soundfile.info(io.BytesIO(file)).duration for file in data[2:]] == [1.5, 0.2]
    ChatRequest.model_validate_json(first.make(Random(0)))


def test_contents_differ_each_time() -> None:
    chat, random = GeneratedChat(words=20, images=((8, 8),), output_tokens=1), Random(0)
    first, second = (json.loads(chat.make(random))["messages"][0]["content"] for _ in range(2))
    assert [part in second for part in first] == [False, False]


def test_long_workloads_are_thinned_evenly(tmp_path: Path) -> None:
    chats = workload_templates(
        workload(tmp_path, *({"text_tokens": number + 1} for number in range(2 * MAX_TEMPLATES)))
    )
    assert [chat.words for chat in chats] == list(range(1, 2 * MAX_TEMPLATES, 2))


def test_media_that_cannot_be_generated_are_named(tmp_path: Path) -> None:
    file = workload(tmp_path, {"text_tokens": 1}, {"videos": [{"seconds": 2.0}]})
    with pytest.raises(RequestError, match=r"the request at 1 s has videos, which cannot be generated"):
        workload_chats(file)
