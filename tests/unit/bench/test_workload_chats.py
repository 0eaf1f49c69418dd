"""Chats that are generated from a workload, for `cornserve bench` and `cornserve profile`."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import av
import PIL.Image
import pytest
import soundfile

from cornserve.bench.media_files import video_url
from cornserve.bench.requests import RequestError
from cornserve.bench.workload_chats import GeneratedChat, GeneratedVideo, workload_chats
from cornserve.gateway.media.video_header import read_video_header
from cornserve.profiler.request_templates import MAX_TEMPLATES, workload_templates
from cornserve_tasklib import ChatRequest

HEADER = {"format": "cornserve-planner/requests", "version": 1}

OUTPUT_IMAGE = {"output_modalities": ["image"], "output_images": [{"width": 8, "height": 8}]}


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


@pytest.mark.parametrize(
    ("video", "expected"),
    [
        ({"width": 64, "height": 48, "seconds": 3, "frames": 5}, (64, 48, 5, 3)),
        ({"width": 64, "height": 48, "seconds": 2.2}, (64, 48, 5, 2.2)),
        ({"width": 56, "height": 28, "tokens": 20}, (56, 28, 20, 10)),
        ({"width": 56, "height": 28}, (56, 28, 10, 5)),
        ({"tokens": 10_000}, (448, 448, 78, 39)),
        ({"tokens": 7}, (84, 84, 2, 1)),
        ({"tokens": 40, "seconds": 5}, (84, 84, 10, 5)),
        ({"frames": 4}, (448, 448, 4, 2)),
    ],
)
def test_unknown_sizes_of_videos_follow_from_the_known_ones(
    video: dict[str, Any], expected: tuple[int, int, int, float], tmp_path: Path
) -> None:
    [chat] = workload_chats(workload(tmp_path, {"text_tokens": 1, "videos": [video]}))

    assert chat.videos == (GeneratedVideo(*expected),)
    [part, _] = chat.body(Random(0))["messages"][0]["content"]
    header = read_video_header(b64decode(part["video_url"]["url"].partition(",")[2]), 100)
    assert (header.format, header.width, header.height, header.frames, header.seconds) == ("GIF", *expected)


@pytest.mark.parametrize(("width", "height"), [(4, 4), (5, 7), (333, 222), (3_000, 2_900)])
def test_videos_are_animations_of_one_color_per_frame(width: int, height: int) -> None:
    """The largest one has more pixels than one dictionary of GIF's compression contains."""
    video = b64decode(video_url(width, height, 3, 0.25, Random(1)).partition(",")[2])

    with av.open(io.BytesIO(video), "r") as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.duration == 250_000
    colors = {tuple(frame[0, 0]) for frame in frames}
    assert [frame.shape for frame in frames] == 3 * [(height, width, 3)]
    assert all((frame == frame[0, 0]).all() for frame in frames)
    assert len(colors) == 3


def test_contents_differ_each_time() -> None:
    video = GeneratedVideo(width=8, height=8, frames=1, seconds=1)
    chat, random = GeneratedChat(words=20, images=((8, 8),), output_tokens=1, audios=(0.1,), videos=(video,)), Random(0)
    first, second = (json.loads(chat.make(random))["messages"][0]["content"] for _ in range(2))
    assert [part in second for part in first] == 4 * [False]


def test_long_workloads_are_thinned_evenly(tmp_path: Path) -> None:
    chats = workload_templates(
        workload(tmp_path, *({"text_tokens": number + 1} for number in range(2 * MAX_TEMPLATES)))
    )
    assert [chat.words for chat in chats] == list(range(1, 2 * MAX_TEMPLATES, 2))


def test_media_that_cannot_be_generated_are_named(tmp_path: Path) -> None:
    file = workload(tmp_path, {"text_tokens": 1}, {"text_tokens": 1, **OUTPUT_IMAGE})
    with pytest.raises(RequestError, match=r"the request at 1 s has output_images, which cannot be generated"):
        workload_chats(file)
