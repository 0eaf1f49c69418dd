"""Models that read all media, or generate images: measured with files of requests, and planned."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.integration.serving.conftest import CommandLine
from tests.models.tiny_families import tiny_model

pytestmark = [pytest.mark.families, pytest.mark.timeout(600)]

MEDIA: list[dict[str, Any]] = [
    {"text_tokens": 4, "images": [{"width": 56, "height": 56}], "output_tokens": 2},
    {"text_tokens": 4, "audios": [{"seconds": 1.1}], "output_tokens": 2},
    {"text_tokens": 4, "videos": [{"width": 56, "height": 56, "seconds": 2}], "output_tokens": 2},
]
IMAGES: list[dict[str, Any]] = [
    {"text_tokens": 4, "output_modalities": ["image"], "output_images": [{"width": 32, "height": 32}]}
]
EDITS: list[dict[str, Any]] = [{**IMAGES[0], "images": [{"width": 64, "height": 48}]}]


def workload(directory: Path, requests: list[dict[str, Any]]) -> str:
    file = directory / "requests.jsonl"
    lines = [{"arrival": number, **request} for number, request in enumerate(requests)]
    header = {"format": "cornserve-planner/requests", "version": 1}
    file.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
    return str(file)


@pytest.mark.parametrize(
    ("model", "requests", "option"),
    [
        ("qwen25omni", MEDIA, "image_encoder+video_encoder"),
        ("qwen25omni", MEDIA, "audio_encoder"),
        ("qwenimage", IMAGES, "text_encoder+denoiser+vae"),
        ("qwenimage", IMAGES, "vae"),
        ("qwenimageedit", EDITS, "text_encoder"),
        ("qwenimageedit", EDITS, "vae"),
    ],
)
def test_an_option_is_measured_and_planned_with_a_file_of_requests(
    model: str, requests: list[dict[str, Any]], option: str, cornserve: CommandLine, tmp_path: Path
) -> None:
    check_measured(cornserve, model, option, "--workload", workload(tmp_path, requests))


def test_the_denoiser_of_an_editing_model_is_measured_with_requests_of_two_steps(
    cornserve: CommandLine, tmp_path: Path
) -> None:
    """On a CPU, the default number of steps takes minutes: the image to edit has 4096 tokens."""
    image = {"format": "PNG", "width": 64, "height": 48, "digest": "", "where": "image"}
    file = tmp_path / "requests.jsonl"
    file.write_text(json.dumps({"prompt": "corn", "image": image, "size": "32x32", "num_inference_steps": 2}))

    check_measured(cornserve, "qwenimageedit", "denoiser", "--requests", str(file))


def check_measured(cornserve: CommandLine, model: str, option: str, *requests: str) -> None:
    with TemporaryDirectory() as directory:
        profile = Path(directory, "profile.json")
        measured = cornserve.run(
            *("profile", str(tiny_model(model)), *requests, "--option", option, "--error", "0.5", "--budget", "100s"),
            *("--output", str(profile)),
        )
        assert measured.returncode == 0, measured.stderr
        [found] = json.loads(profile.read_text())["options"]
    assert (found["option"], found["throughput"] != []) == (option, True)
