"""Further architectures, whole and with encoders apart: the tokens are those of vLLM's own server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_tasklib.encoder_families import ENCODER_MODALITIES
from tests.audio import as_audio, sound
from tests.images import as_image, noise
from tests.integration.multimodal.encoder import running_encoder
from tests.integration.multimodal.engine import running_llm
from tests.integration.multimodal.media_chats import AUDIO_CONTENTS, VIDEO_CONTENTS, MediaContent, media_chat
from tests.integration.multimodal.media_tests import MEDIA_MARKS, check_paths
from tests.integration.multimodal.multimodal_tests import new_id
from tests.integration.multimodal.vllm_reference import vllm_tokens
from tests.models.tiny_families import FAMILIES, tiny_model, whole_model

pytestmark = [
    *MEDIA_MARKS,
    pytest.mark.filterwarnings("ignore:`rope_config_validation` is deprecated:FutureWarning"),  # raised by vLLM
]

TEXT: dict[str, MediaContent] = {"text only": ["Tell me something."]}
IMAGES: dict[str, MediaContent] = {
    "one image": [as_image(noise(1, 112, 84)), "What is it?"],
    "several of different sizes": ["Compare ", as_image(noise(2, 112, 84)), as_image(noise(3, 60, 200)), " please."],
    "the same twice": [as_image(noise(4, 84, 84)), as_image(noise(4, 84, 84)), "?"],
    "images only": [as_image(noise(5, 300, 290)), as_image(noise(6, 30, 90))],
}

ONE_SOUND: dict[str, MediaContent] = {name: AUDIO_CONTENTS[name] for name in ("one", "8-bit 8 kHz", "5.1 channels")}
SOUNDS: dict[str, MediaContent] = {name: AUDIO_CONTENTS[name] for name in ("one", "8-bit 8 kHz", "the same twice")} | {
    "several": ["Compare ", as_audio(sound(4, 1.1)), " with ", as_audio(sound(5, 2)), as_audio(sound(6, 1.4)), "."],
}
"""Sounds of at least a second: vLLM's embeddings of shorter ones depend on the other sounds of a batch."""

Contents = Mapping[str, MediaContent]

CONTENTS: dict[str, dict[str, Contents]] = {
    "whole": {
        "llava_next": TEXT | IMAGES,
        "paligemma": TEXT | {"one image": IMAGES["one image"]},
        "audio_flamingo3": TEXT | ONE_SOUND,
        "llama4": TEXT | IMAGES,
        "qwen3_vl_moe": TEXT | IMAGES | VIDEO_CONTENTS,
        "glm4v": TEXT | IMAGES,
        "glm4v_moe": TEXT | IMAGES,
    },
    "image": {
        "idefics3": TEXT | IMAGES,
        "cohere2_vision": TEXT | IMAGES,
        "glm_ocr": TEXT | IMAGES,
        "exaone4_5": TEXT | IMAGES | VIDEO_CONTENTS,
        "aria": TEXT | IMAGES,
    },
    "speech": {
        # vLLM's server refuses several sounds in a prompt.
        "glm_asr": TEXT | ONE_SOUND,
        "qwen3_asr": TEXT | SOUNDS,
    },
}
"""The chats with each model, by the names in tests/models/tiny_KIND_families.py."""

ONE_MEDIUM = {"paligemma": "one image", "audio_flamingo3": "one"}
"""A chat with each model that reads only one medium."""


def mark(name: str) -> pytest.MarkDecorator:
    """The tier of a model's tests: most run in `make families` only."""
    return pytest.mark.slow if name in ("llava_next", "paligemma", "qwen3_asr") else pytest.mark.families


CONCURRENT = 8


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, name, marks=mark(name)) for kind, models in CONTENTS.items() for name in models],
)
async def test_concurrent_chats_get_the_tokens_of_vllm_alone(
    kind: str, name: str, fork_variables: dict[str, str]
) -> None:
    with running_llm(whole_model(kind, name), fork_variables, with_enc=True) as engine:
        contents = [*CONTENTS[kind][name].values()]
        expected = [await vllm_tokens(engine, content) for content in contents]
        assert len({*map(tuple, expected)}) == len(contents)

        asked = (contents * CONCURRENT)[: max(CONCURRENT, len(contents))]
        results = await asyncio.gather(*(engine.generate(media_chat(content), new_id()) for content in asked))

        assert [result.token_ids for result in results] == (expected * CONCURRENT)[: len(asked)]
        if name in ONE_MEDIUM:
            twice = [*CONTENTS[kind][name][ONE_MEDIUM[name]]] * 2
            with pytest.raises(InvalidRequestError, match="accepts at most 1 "):
                await engine.generate(media_chat(twice), new_id())


APART = [
    *[("whole", name) for name in ("llava_next", "llama4", "qwen3_vl_moe", "glm4v", "glm4v_moe", "audio_flamingo3")],
    ("whole", "paligemma"),
    *[("image", name) for name in ("idefics3", "cohere2_vision", "glm_ocr", "exaone4_5", "aria")],
    *[("speech", name) for name in ("glm_asr", "qwen3_asr")],
]
"""The models whose encoders run apart."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=pytest.mark.families if name == "qwen3_asr" else mark(name))
        for kind, name in APART
    ],
)
async def test_encoders_apart_give_the_tokens_of_vllm_alone(
    kind: str, name: str, fork_variables: dict[str, str], tmp_path: Path
) -> None:
    model, contents = whole_model(kind, name), CONTENTS[kind][name]
    async with running_encoder(model, tmp_path, modality=ENCODER_MODALITIES[architecture(model)]) as encoder:
        with (
            running_llm(model, fork_variables, with_enc=True) as engine,
            running_llm(model, fork_variables, with_enc=False) as language_only,
        ):
            await check_paths(contents, engine, language_only, encoder)
            whole, partial = await engine.parameter_counts(), await language_only.parameter_counts()
            assert 0 < sum(partial.values()) < sum(whole.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_encoders_of_each_architecture_are_compared() -> None:
    # test_families.py and test_audio.py compare these.
    in_families = {architecture(model) for model in (*(family.path for family in FAMILIES), tiny_model("qwen2audio"))}
    compared = in_families | {architecture(whole_model(*model)) for model in APART}
    assert compared | {"Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniModel"} == ENCODER_MODALITIES.keys()


def architecture(model: Path) -> str:
    (name,) = json.loads((model / "config.json").read_text())["architectures"]
    return str(name)


@pytest.mark.slow
async def test_the_list_of_architectures_is_that_of_the_installed_vllm() -> None:
    check = await asyncio.create_subprocess_exec(sys.executable, "-m", "scripts.vllm_architectures", "--check")
    assert await check.wait() == 0
