"""A model that reads all media, served by a complete instance: all placements of its encoders respond alike."""

from __future__ import annotations

import pytest

from cornserve.client.media import audio_part
from tests.audio import audio_file, sound
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import Part, ask, noise_part, sum_metric, text_part, video_part
from tests.models.tiny_families import tiny_model

APP = "omni"
PATHS = ["monolith", "e-l", "e-el", "joint-e-l", "joint-e-el"]

CHATS: dict[str, list[Part]] = {
    "text": [text_part("Hello there")],
    "image": [text_part("What is this?"), noise_part(1)],
    "audio": [audio_part(audio_file(sound(1, 1.3))), text_part("What is this?")],
    "video": [text_part("What happens?"), video_part(20, 96, 64)],
    "video with sound": [text_part("What happens?"), video_part(20, 96, 64, sound="aac")],
    "images and audio": [noise_part(2), audio_part(audio_file(sound(2))), text_part("and"), noise_part(3, 56, 168)],
}


OPTIONS = {"video with sound": {"mm_processor_kwargs": {"use_audio_in_video": True}}}


@pytest.mark.families
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["qwen25omni", "qwen3omni"])
def test_all_placements_of_the_encoders_give_the_same_tokens(cornserve: CommandLine, name: str) -> None:
    results = {}
    for path in PATHS:
        deployed = cornserve.run("deploy", str(tiny_model(name)), "--name", APP, "--share", path, "--timeout", "150")
        assert deployed.returncode == 0, deployed.stderr
        results[path] = {chat: ask(cornserve, APP, content, **OPTIONS.get(chat, {})) for chat, content in CHATS.items()}
        for modality in ("image", "audio", "video"):
            encoded = sum_metric(cornserve, APP, f'cornserve_encoder_items_total{{modality="{modality}"}}')
            assert (encoded > 0) == (path != "monolith")
    cornserve.run("delete", APP)

    assert len({*map(tuple, results["monolith"].values())}) == len(CHATS)
    assert results == dict.fromkeys(PATHS, results["monolith"])
