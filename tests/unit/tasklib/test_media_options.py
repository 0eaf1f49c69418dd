"""The options of media: those of a task are the defaults of its requests."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_core import from_json

from cornserve.app.load import load_app
from cornserve.app.spec import AppModel, AppSpec
from cornserve_tasklib import EngineOptions, Mllm
from cornserve_tasklib.media_options import MediaLoading, MediaOptions, MediaProcessing
from tests.images import as_image, noise
from tests.integration.multimodal.media_chats import media_chat
from tests.unit.task.shout_task import record
from tests.video import as_video

VISION = "Qwen/Qwen2.5-VL-3B-Instruct"
CHAT = media_chat([as_image(noise(1, 32, 32)), as_video(4, 64, 64, fps=2).with_options(MediaOptions(fps=4))])


def options_key(medium: dict[str, Any]) -> str:
    return MediaOptions.model_validate(medium["options"]).key


@pytest.mark.parametrize("split_encoder", [False, True])
def test_the_options_of_a_task_are_defaults_on_all_paths(split_encoder: bool) -> None:
    defaults = MediaOptions(fps=1, max_frames=8, max_pixels=5000)
    path = Mllm(
        model_id="m/m", media_options=defaults, split_encoder=split_encoder, encoder_modalities=("image", "video")
    )

    _, recording = record(lambda: path.invoke(CHAT))

    *encoded, chat = [from_json(invocation.request) for invocation in recording.invocations]
    media = [part["media"] for part in chat["messages"][0]["content"]]
    expected = ["max_pixels=5000", "fps=4.0,max_frames=8,max_pixels=5000"]
    assert [options_key(medium) for medium in encoded] == (expected if split_encoder else [])
    assert [options_key(medium) for medium in media] == expected
    assert CHAT.media[0].options == MediaOptions()


@pytest.mark.parametrize(
    ("given", "defaults", "used"),
    [
        ({"num_frames": 4}, {"fps": 2}, "num_frames=4"),
        ({"fps": 2}, {"num_frames": 4}, "fps=2.0"),
        ({"fps": 2, "num_frames": 4}, {"fps": 1, "num_frames": 8}, "fps=2.0,num_frames=4"),
        ({"min_frames": 9}, {"max_frames": 8, "fps": 1}, "fps=1.0,min_frames=9"),
        ({"max_pixels": 9}, {"min_pixels": 10}, "max_pixels=9"),
        ({"max_pixels": 9}, {"min_pixels": 8}, "min_pixels=8,max_pixels=9"),
        ({}, {"max_pixels": 9}, "max_pixels=9"),
        ({"min_patches": 4}, {"max_patches": 3, "max_pixels": 9}, "max_pixels=9,min_patches=4"),
    ],
)
def test_defaults_that_contradict_an_option_are_not_used(
    given: dict[str, Any], defaults: dict[str, Any], used: str
) -> None:
    options = MediaOptions.model_validate(given).with_defaults(MediaOptions.model_validate(defaults))

    assert options.key == used


def test_the_options_of_a_deployed_model_are_those_of_its_tasks() -> None:
    options = MediaOptions(fps=1, max_pixels=5000)
    specs = [AppSpec(model=AppModel(id=VISION, media_options=given)) for given in (None, options)]

    without, thrifty = (load_app("app", spec, "unused") for spec in specs)

    assert [getattr(app.paths[0], "media_options", None) for app in (without, thrifty)] == [MediaOptions(), options]
    assert without.executor_specs().keys() == thrifty.executor_specs().keys(), "the executors are shared"
    assert specs[0].code != specs[1].code


@pytest.mark.parametrize("name", ["mm_processor_kwargs", "media_io_kwargs"])
def test_arguments_of_the_engine_cannot_set_options_of_media(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*cannot be set"):
        EngineOptions(engine_args={name: {}})


def test_a_null_counts_as_omitted() -> None:
    assert MediaLoading.model_validate({"video": None}) == MediaLoading()
    assert MediaProcessing.model_validate({"use_audio_in_video": None}) == MediaProcessing()
