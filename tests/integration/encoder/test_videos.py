"""Encoders of videos: their embeddings equal those of transformers up to float32 rounding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve.transport.protocol import MAX_METADATA_BYTES
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib import Video
from cornserve_tasklib.encoder_families import MEDIA_OPTIONS
from cornserve_tasklib.media import Media
from cornserve_tasklib.media_options import MediaOptions
from tests.images import as_image, image_from_file, noise
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.encoder.reference import TOLERANCE, load_transformers_model
from tests.integration.engine_pool import EnginePool
from tests.models.tiny_families import VIDEO_FAMILIES, TinyFamily, tiny_model
from tests.video import as_video, transparent_gif, video_from_file

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine


def families(*excluded: str) -> pytest.MarkDecorator:
    """Runs a test for families with videos."""
    return pytest.mark.parametrize(
        "family",
        [
            pytest.param(family, id=str(family), marks=[pytest.mark.slow] * (str(family) != "qwen3vl"))
            for family in VIDEO_FAMILIES
            if str(family) not in excluded
        ],
    )


VIDEOS = [
    *(as_video(9, 96, 64, fps=3), as_video(20, 64, 120, fps=10), as_video(2, 300, 200, fps=2)),
    as_video(40, 60, 80, fps=8, degrees=90),
]
IMAGES = [as_image(noise(1, 112, 84)), as_image(noise(2, 60, 90))]
MEDIA: list[Media] = [*VIDEOS, *IMAGES]


def transformers_rows(family: TinyFamily, videos: Sequence[Video]) -> list[Any]:
    """Returns the rows of each video, for the frames of vLLM's loader."""
    import torch
    from transformers import AutoProcessor
    from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, get_video_loader_backend_for_processor

    processor = AutoProcessor.from_pretrained(family.path)
    model = load_transformers_model(family.path)
    video_processor = type(processor.video_processor).__name__
    loader = VIDEO_LOADER_REGISTRY.load(get_video_loader_backend_for_processor(video_processor) or "opencv")
    rows = []
    for medium in videos:
        assert medium.data is not None
        frames, _ = loader.load_bytes(medium.data.data, num_frames=32)
        text = [processor.video_token]
        inputs = processor(text=text, videos=[frames], do_sample_frames=False, return_tensors="pt")
        arguments = {name: inputs[name] for name in ("pixel_values_videos", "video_grid_thw") if name in inputs}
        with torch.no_grad():
            output = model.get_video_features(**arguments)
        levels = [output.pooler_output, *getattr(output, "deepstack_features", [])]
        rows.append(torch.cat([torch.cat([*level]) for level in levels], dim=-1))
    return rows


def count_items(stats: EncoderStats) -> float:
    """Returns the number of media and parts in all batches."""
    samples = [sample for metric in stats.metrics() for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name == "cornserve_encoder_batch_items_sum")


@families("internvl")  # transformers has no method that encodes its videos.
async def test_videos_are_encoded_as_by_transformers_alone_and_in_a_batch(family: TinyFamily) -> None:
    import torch

    expected = await asyncio.to_thread(transformers_rows, family, VIDEOS)
    async with running_engine(encoder_task(family.path, modality="video")) as engine:
        await engine.warm_up()
        alone = [await encode_rows(engine, medium) for medium in VIDEOS]
        together = await asyncio.gather(*(encode_rows(engine, medium) for medium in VIDEOS))
    stats = EncoderStats("image", "video")
    parts = {"modality": ("image", "video"), "max_batch_patches": 320}  # Videos are encoded in parts.
    async with running_engine(encoder_task(family.path, **parts), stats) as joint:
        mixed = await asyncio.gather(*(encode_rows(joint, medium) for medium in MEDIA))
    assert count_items(stats) > len(MEDIA)
    async with running_engine(encoder_task(family.path)) as images:
        for medium, rows in zip(IMAGES, mixed[len(VIDEOS) :], strict=True):
            torch.testing.assert_close(rows, await encode_rows(images, medium), **TOLERANCE)

    for rows in (alone, together, mixed[: len(VIDEOS)]):
        for actual, reference in zip(rows, expected, strict=True):
            torch.testing.assert_close(actual, reference, **TOLERANCE)


@families()
async def test_a_constant_encoder_publishes_zeros_for_videos(
    engines: EnginePool[EncoderEngine], family: TinyFamily
) -> None:
    medium = as_video(12, 300, 200, fps=3)
    engine = await engines.engine(encoder_task(family.path, modality="video", constant=True))
    with await engine.prepare(medium, "request") as prepared:
        shape = engine.shape(medium, prepared)
    rows = await encode_rows(engine, medium)

    assert rows.shape == shape
    assert not rows.any()


async def test_a_video_is_encoded_once_and_a_file_may_be_an_image_and_a_video(tiny_qwen25vl: Path) -> None:
    file = transparent_gif([100])
    video = video_from_file(file, "GIF", width=40, height=30, frames=1, seconds=0.1)
    image = image_from_file(file, "GIF", 40, 30)
    stats = EncoderStats("image", "video")
    async with running_engine(encoder_task(tiny_qwen25vl, modality=["image", "video"]), stats) as engine:
        assert image.digest == video.digest
        assert engine.cache_key(image) != engine.cache_key(video)

        await asyncio.gather(*(encode_rows(engine, medium) for medium in (image, video, video)))

    counted = {
        (sample.name, sample.labels.get("modality")): sample.value
        for metric in stats.metrics()
        for sample in metric.samples
    }
    assert [counted["cornserve_encoder_items_total", modality] for modality in ("image", "video")] == [1, 1]
    assert counted["cornserve_encoder_deduplicated_total", "video"] == 1


async def count_rows(engine: EncoderEngine, medium: Media) -> int:
    with await engine.prepare(medium, "request") as prepared:
        return prepared.rows


@families()
async def test_the_metadata_of_the_longest_video_fit(engines: EnginePool[EncoderEngine], family: TinyFamily) -> None:
    video = as_video(800, 280, 280, fps=2)
    engine = await engines.engine(encoder_task(family.path, modality="video", constant=True))
    with await engine.prepare(video.with_options(MediaOptions(fps=2)), "request") as prepared:
        assert len(prepared.describe("key").model_dump_json()) < MAX_METADATA_BYTES


@families()
async def test_the_options_of_frames_by_model_type_are_those_of_the_families(
    engines: EnginePool[EncoderEngine], family: TinyFamily
) -> None:
    video = as_video(12, 96, 64, fps=3)
    every = MediaOptions(fps=1, num_frames=8, min_frames=2, max_frames=8)
    config = json.loads((family.path / "config.json").read_text())
    engine = await engines.engine(encoder_task(family.path, modality="video", constant=True))
    for name, value in every.frames.items():
        medium = video.with_options(MediaOptions.model_validate({name: value}))
        if name in MEDIA_OPTIONS[config["model_type"]]:
            await count_rows(engine, medium)
        else:
            with pytest.raises(InvalidRequestError, match=rf"media_io_kwargs\.video\.{name}: the model does not"):
                await count_rows(engine, medium)


async def test_options_are_part_of_the_key_and_are_refused_by_families_without_them(
    engines: EnginePool[EncoderEngine], tiny_qwen25vl: Path
) -> None:
    video = as_video(20, 96, 64, fps=10)
    fast = video.with_options(MediaOptions(fps=5))
    limited = video.with_options(MediaOptions(max_pixels=3000))
    engine = await engines.engine(encoder_task(tiny_qwen25vl, modality="video", constant=True))
    assert len({engine.cache_key(medium) for medium in (video, fast, limited)}) == 3
    rows = [await count_rows(engine, medium) for medium in (limited, video, fast)]
    assert rows == sorted({*rows})
    assert await count_rows(engine, video.with_options(MediaOptions(num_frames=2))) == rows[1]
    async with running_engine(encoder_task(tiny_model("llava_onevision"), modality="video", constant=True)) as engine:
        fewer = video.with_options(MediaOptions(num_frames=6))
        assert await count_rows(engine, fewer) < await count_rows(engine, video)
        with pytest.raises(InvalidRequestError, match=r"media_io_kwargs\.video\.max_frames: .* use fps, num_frames"):
            await count_rows(engine, video.with_options(MediaOptions(max_frames=4)))
        with pytest.raises(InvalidRequestError, match=r"mm_processor_kwargs\.max_pixels: the model does not have"):
            await count_rows(engine, limited)


async def test_videos_of_the_thinker_have_the_checkpoints_limits_only_with_options_of_pixels() -> None:
    video = as_video(8, 96, 64, fps=4)
    async with running_engine(encoder_task(tiny_model("qwen25omni"), modality="video", constant=True)) as engine:
        rows = [
            await count_rows(engine, video.with_options(options))
            for options in (MediaOptions(max_pixels=3200), MediaOptions(max_pixels=200_704), MediaOptions())
        ]
        assert rows == sorted({*rows})
        with pytest.raises(InvalidRequestError, match=r"max_pixels: 200705 is above the model's limit for videos"):
            await count_rows(engine, video.with_options(MediaOptions(max_pixels=200_705)))


async def test_unusable_videos_are_named(engines: EnginePool[EncoderEngine], tiny_qwen25vl: Path) -> None:
    usable = as_video(9, 96, 64, fps=3)
    assert usable.data is not None
    flat = as_video(4, 1000, 4, fps=2)
    engine = await engines.engine(encoder_task(tiny_qwen25vl, modality="video", constant=True))
    for media, reason in (
        (flat, "the model does not accept the video: .* aspect ratio"),
        (usable.model_copy(update={"frames": 8}), "the video has more than the declared 8 frames"),
        (usable.model_copy(update={"format": "WEBM"}), "the WEBM video cannot be decoded"),
        (as_image(noise(0, 20, 20)), "this encoder encodes video, not image"),
    ):
        with pytest.raises(UnusableMediaError, match=rf"messages\[0\].content\[0\]: {reason}"):
            await count_rows(engine, media)
