"""Encoders of images: their embeddings equal those of transformers up to float32 rounding."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cornserve_tasklib.media import Media
from tests.audio import as_audio, sound
from tests.images import as_image, noise
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.encoder.reference import TOLERANCE, transformers_rows
from tests.integration.engine_pool import EnginePool
from tests.models.tiny_families import FAMILIES, TinyFamily, tiny_model

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine

SIZES = [(112, 84), (84, 112), (300, 200), (60, 180), (640, 480), (33, 31), (20, 300)]
PICTURES = [noise(seed, width, height) for seed, (width, height) in enumerate(SIZES)]

families = pytest.mark.parametrize("family", FAMILIES, ids=str)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, id=str(family), marks=[pytest.mark.slow] * (str(family) not in ("qwen25vl", "internvl")))
        for family in FAMILIES
    ],
)
async def test_images_are_encoded_as_by_transformers_alone_and_in_a_batch(
    engines: EnginePool[EncoderEngine], family: TinyFamily
) -> None:
    import torch

    expected = transformers_rows(family.path, PICTURES)
    images = [as_image(picture) for picture in PICTURES]
    engine = await engines.engine(encoder_task(family.path))
    alone = [await encode_rows(engine, image) for image in images]
    together = await asyncio.gather(*(encode_rows(engine, image) for image in images))
    other = await encode_rows(engine, as_image(noise(99, 112, 84)))

    for rows in (alone, together):
        for actual, reference in zip(rows, expected, strict=True):
            torch.testing.assert_close(actual, reference, **TOLERANCE)
    assert not torch.allclose(alone[0], other, atol=0.1)


@pytest.mark.slow
@families
async def test_a_constant_encoder_publishes_zeros_of_the_same_shape(family: TinyFamily) -> None:
    import torch

    image = as_image(noise(0, 300, 200))
    async with (
        running_engine(encoder_task(family.path, constant=True)) as constant,
        running_engine(encoder_task(family.path)) as engine,
    ):
        await constant.warm_up()
        with await constant.prepare(image, "request") as prepared, await engine.prepare(image, "request") as same:
            assert prepared.describe("key") == same.describe("key")
        real, zeros = await encode_rows(engine, image), await encode_rows(constant, image)

        assert constant.cache_key(image) != engine.cache_key(image)
    assert zeros.dtype == real.dtype
    torch.testing.assert_close(zeros, torch.zeros_like(real))


@pytest.mark.parametrize("name", ["qwen25omni", pytest.param("qwen3omni", marks=pytest.mark.slow)])
async def test_a_joint_encoder_has_the_embeddings_and_keys_of_separate_ones(name: str) -> None:
    import torch

    model = tiny_model(name)
    media: dict[str, Media] = {"image": as_image(noise(1, 112, 84)), "audio": as_audio(sound(1, 0.7))}
    async with running_engine(encoder_task(model, modality=["audio", "image"])) as joint:
        await joint.warm_up()
        found = await asyncio.gather(*(encode_rows(joint, medium) for medium in media.values()))
        keys = [joint.cache_key(medium) for medium in media.values()]
    for (modality, medium), rows, key in zip(media.items(), found, keys, strict=True):
        async with running_engine(encoder_task(model, modality=modality)) as separate:
            assert torch.equal(rows, await encode_rows(separate, medium))
            assert key == separate.cache_key(medium)
