"""Models that read all media, or generate images: measured with files of requests, and planned."""

from __future__ import annotations

import json
from pathlib import Path
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
    ],
)
def test_an_option_is_measured_and_planned_with_a_file_of_requests(
    model: str, requests: list[dict[str, Any]], option: str, cornserve: CommandLine, tmp_path: Path
) -> None:
    directory, file, profile = str(tiny_model(model)), workload(tmp_path, requests), tmp_path / "profile.json"

    measured = cornserve.run(
        *("profile", directory, "--workload", file, "--option", option, "--error", "0.5", "--budget", "100s"),
        *("--output", str(profile)),
    )

    assert measured.returncode == 0, measured.stderr
    [found] = json.loads(profile.read_text())["options"]
    assert (found["option"], found["throughput"] != []) == (option, True)
