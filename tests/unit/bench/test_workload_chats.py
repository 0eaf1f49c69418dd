"""Requests that are generated from a workload, for `cornserve bench` and `cornserve profile`."""

from __future__ import annotations

import io
import json
import tracemalloc
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import av
import PIL.Image
import pytest
import soundfile

from cornserve.app.app import App
from cornserve.bench.media_files import video_url
from cornserve.bench.requests import RequestError
from cornserve.bench.workload_chats import GeneratedChat, GeneratedVideo
from cornserve.bench.workload_images import GeneratedImages
from cornserve.bench.workload_requests import recorded_requests, workload_requests
from cornserve.bench.workload_speech import GeneratedSpeech
from cornserve.gateway.media.video_header import read_video_header
from cornserve.profiler.request_templates import MAX_TEMPLATES, workload_templates
from cornserve_tasklib import (
    Chat,
    ChatRequest,
    ImageEditRequest,
    ImageGenerationRequest,
    SpeakingChat,
    SpeechRequest,
    SpokenChatRequest,
)

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
    first, second = workload_requests(file)
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
    [chat] = workload_requests(workload(tmp_path, {"text_tokens": 1, "videos": [video]}))

    assert isinstance(chat, GeneratedChat)
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
    file = workload(tmp_path, *({"text_tokens": number + 1} for number in range(2 * MAX_TEMPLATES)))
    app = App(name="chat", paths=[Chat(model_id="/models/m")])
    assert workload_templates(file, app) == [GeneratedChat(n, (), 0) for n in range(1, 2 * MAX_TEMPLATES, 2)]


def test_a_long_workload_is_never_held_whole(tmp_path: Path) -> None:
    app = App(name="chat", paths=[Chat(model_id="/models/m")])
    workload_templates(workload(tmp_path, {"text_tokens": 1}), app)  # Loads what the first call needs.
    file = workload(tmp_path, *({"text_tokens": number + 1} for number in range(16 * MAX_TEMPLATES)))
    tracemalloc.start()
    templates = workload_templates(file, app)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert templates == [GeneratedChat(n, (), 0) for n in range(1, 16 * MAX_TEMPLATES, 16)]
    assert peak < 1 << 20


def test_the_requests_of_a_run_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.bench.workload_requests.MOST_REQUESTS", 2)
    file = workload(tmp_path, *({"text_tokens": number + 1} for number in range(3)))
    assert [each.words for each in workload_requests(file, 2) if isinstance(each, GeneratedChat)] == [1, 2]
    for read in (lambda: workload_requests(file), lambda: recorded_requests(file, None, None)):
        with pytest.raises(RequestError, match="has more than 2 requests: limit them with --requests"):
            read()


def test_chats_for_an_app_that_speaks_name_the_modalities_of_the_response(tmp_path: Path) -> None:
    file = workload(tmp_path, {"text_tokens": 2}, {"text_tokens": 2, "output_modalities": ["text", "audio"]})
    templates = workload_templates(file, App(name="speaker", paths=[SpeakingChat(model_id="/models/m")]))
    requests = [SpokenChatRequest.model_validate_json(template.make(Random(0))) for template in templates]
    assert [request.modalities for request in requests] == [["text"], ["text", "audio"]]
    assert len(requests[0].chat.messages) == 1


def test_requests_for_audio_alone_are_texts_to_speak(tmp_path: Path) -> None:
    [request] = workload_requests(workload(tmp_path, {"text_tokens": 7, "output_modalities": ["audio"]}))
    assert request == GeneratedSpeech(7)
    speech = SpeechRequest.model_validate_json(request.make(Random(0)))
    assert len(speech.input.split()) == 7


IMAGE = {"text_tokens": 5, "output_modalities": ["image"]}


@pytest.mark.parametrize(
    ("output_images", "expected"),
    [
        ([{"width": 500, "height": 300}], GeneratedImages(5, "496x304")),
        ([{"tokens": 256}, {"width": 256, "height": 256}], GeneratedImages(5, "256x256", 2)),
        ([{"width": 1, "height": 9000}], GeneratedImages(5, "16x4096")),
        ([], GeneratedImages(5, "1024x1024")),
    ],
)
def test_requests_for_images_have_the_sizes_of_the_workload(
    output_images: list[dict[str, int]], expected: GeneratedImages, tmp_path: Path
) -> None:
    [request] = workload_requests(workload(tmp_path, {**IMAGE, "output_images": output_images}))
    assert request == expected
    bodies = [ImageGenerationRequest.model_validate_json(request.make(Random(seed))) for seed in (0, 1)]
    assert [(len(body.prompt.split()), body.size, body.n) for body in bodies] == 2 * [
        (5, expected.size, expected.count)
    ]
    assert bodies[0].prompt != bodies[1].prompt


def test_requests_for_images_with_an_image_change_it(tmp_path: Path) -> None:
    size = {"width": 64, "height": 48}
    file = workload(tmp_path, {**IMAGE, "images": [size], "output_images": [size]}, {**IMAGE, "images": [size]})
    [request, auto] = workload_requests(file)
    assert (request, auto) == (GeneratedImages(5, "64x48", 1, (64, 48)), GeneratedImages(5, "auto", 1, (64, 48)))
    edit = ImageEditRequest.model_validate_json(request.make(Random(0)))
    assert (edit.image.width, edit.image.height, edit.image.data) == (64, 48, None)
    sent = request.body(Random(0))["image"]
    assert PIL.Image.open(io.BytesIO(sent)).size == (64, 48)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output_modalities": ["audio"], "images": [{"tokens": 9}]}, "has images and only audio output"),
        ({"output_modalities": ["text", "image"]}, "has output images and other output"),
        ({**IMAGE, "images": 2 * [{"tokens": 9}]}, "has 2 images and output images: give at most one image"),
        ({**IMAGE, "videos": [{"tokens": 9}]}, "has videos and output images"),
        ({**IMAGE, "output_images": [{"tokens": 9}, {"tokens": 16}]}, "has output images of 2 sizes: give one size"),
        ({**IMAGE, "output_images": 11 * [{"tokens": 9}]}, "has 11 output images: give at most 10"),
    ],
)
def test_requests_that_cannot_be_generated_are_named(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = workload(tmp_path, {"text_tokens": 1}, {"text_tokens": 1, **fields})
    with pytest.raises(RequestError, match=rf"requests.jsonl: the request at 1 s {message}.*: remove it, or give"):
        workload_requests(file)
