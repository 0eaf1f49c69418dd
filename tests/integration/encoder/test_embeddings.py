"""An encoder's embeddings are those that transformers' own model makes, to the last bits of float32."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL.Image
import pytest

from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.images import UnusableImageError
from tests.images import file_of, image_of, noise, sent
from tests.integration.encoder.engine import encoding, rows_of

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine

SIZES = [(112, 84), (84, 112), (300, 200), (60, 180), (640, 480), (33, 31), (20, 300)]
PICTURES = [noise(seed, width, height) for seed, (width, height) in enumerate(SIZES)]

TOLERANCE = {"rtol": 0, "atol": 2e-5}
"""The rows' values are up to ten; the order of additions depends on the machine and the batch."""


def by_transformers(model: Path, pictures: Sequence[PIL.Image.Image]) -> list[Any]:
    """The rows of each picture, by the whole model and the whole processor."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    whole = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
    rows = []
    for picture in pictures:
        inputs = processor(text=[processor.image_token], images=[picture], return_tensors="pt")
        arguments = {name: inputs[name] for name in ("pixel_values", "image_grid_thw") if name in inputs}
        with torch.no_grad():
            features = whole.get_image_features(**arguments).pooler_output
        made = torch.cat([part.flatten(0, -2) for part in features])
        assert len(made) == (inputs["input_ids"] == processor.image_token_id).sum()
        rows.append(made)
    return rows


async def test_alone_and_together_images_are_encoded_as_by_transformers(model: Path, engine: EncoderEngine) -> None:
    import torch

    expected = by_transformers(model, PICTURES)
    images = [sent(picture) for picture in PICTURES]

    alone = [await rows_of(engine, image) for image in images]
    together = await asyncio.gather(*(rows_of(engine, image) for image in images))

    for rows in (alone, together):
        for made, wanted in zip(rows, expected, strict=True):
            torch.testing.assert_close(made, wanted, **TOLERANCE)
    assert not torch.allclose(alone[0], (await rows_of(engine, sent(noise(99, 112, 84)))), atol=0.1)


async def test_a_turned_image_is_planned_and_encoded_upright(model: Path, engine: EncoderEngine) -> None:
    import torch

    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    lying = noise(1, 300, 60)
    (expected,) = by_transformers(model, [lying.transpose(PIL.Image.Transpose.ROTATE_270)])

    torch.testing.assert_close(await rows_of(engine, sent(lying, exif=exif)), expected, **TOLERANCE)


@pytest.fixture
def uncropped_internvl(tiny_internvl: Path, tmp_path: Path) -> Path:
    """Its image processor is set not to crop, as in the checkpoints on the hub."""
    for file in tiny_internvl.iterdir():
        data = file.read_bytes().replace(b'"crop_to_patches": true', b'"crop_to_patches": false')
        (tmp_path / file.name).write_bytes(data)
    return tmp_path


async def test_internvls_processor_crops_whatever_its_image_processor_is_set_to(uncropped_internvl: Path) -> None:
    import torch

    (expected,) = by_transformers(uncropped_internvl, [PICTURES[2]])
    async with encoding(uncropped_internvl) as engine:
        torch.testing.assert_close(await rows_of(engine, sent(PICTURES[2])), expected, **TOLERANCE)


async def test_the_language_model_is_told_what_it_has_to_know(tiny_qwen25vl: Path, tiny_internvl: Path) -> None:
    async with encoding(tiny_qwen25vl) as engine:
        assert (await engine.plan(sent(PICTURES[2]))).fields == {"image_grid_thw": [1, 14, 22]}
    async with encoding(tiny_internvl) as engine:
        assert (await engine.plan(sent(PICTURES[2]))).fields == {"image_num_patches": [5]}


async def test_bfloat16_rows_are_those_of_a_model_in_bfloat16(tiny_qwen25vl: Path) -> None:
    import torch

    (expected,) = by_transformers(tiny_qwen25vl, [PICTURES[0]])
    async with encoding(tiny_qwen25vl, dtype="bfloat16") as engine:
        rows = await rows_of(engine, sent(PICTURES[0]))

    assert rows.dtype == torch.bfloat16
    torch.testing.assert_close(rows.float(), expected, rtol=0.1, atol=0.2)


async def test_equal_images_at_the_same_time_are_encoded_once(engine: EncoderEngine, stats: EncoderStats) -> None:
    import torch

    first, *others = await asyncio.gather(*(rows_of(engine, sent(PICTURES[0]), f"request-{n}") for n in range(5)))

    assert all(torch.equal(first, other) for other in others)
    counted = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    assert counted["cornserve_encoder_images_total"] == 1
    assert counted["cornserve_encoder_deduplicated_total"] == 4


async def test_what_is_wrong_with_an_image_is_said_with_its_own_place(engine: EncoderEngine) -> None:
    cut = file_of(PICTURES[2])[:-1000]
    images = [image_of(cut, "PNG", 300, 200, where=f"messages[{index}].content[0]") for index in range(2)]

    first, second = await asyncio.gather(*(rows_of(engine, image) for image in images), return_exceptions=True)

    assert str(first).startswith("messages[0].content[0]: the PNG image cannot be decoded"), first
    assert str(second).startswith("messages[1].content[0]: the PNG image cannot be decoded"), second
    assert isinstance(first, UnusableImageError)


async def test_a_shape_that_the_model_does_not_take_is_refused_before_it_is_decoded(tiny_qwen25vl: Path) -> None:
    async with encoding(tiny_qwen25vl) as engine:
        with pytest.raises(UnusableImageError, match=r"messages.* the model does not take it: .* aspect ratio"):
            await engine.plan(sent(PIL.Image.new("RGB", (2000, 4))))


async def test_the_key_tells_images_and_encoders_apart(tiny_qwen25vl: Path, tiny_internvl: Path) -> None:
    async with encoding(tiny_qwen25vl) as qwen, encoding(tiny_qwen25vl) as same, encoding(tiny_internvl) as internvl:
        image, other = sent(PICTURES[0]), sent(PICTURES[1])
        assert qwen.key(image) == same.key(image)
        assert len({qwen.key(image), qwen.key(other), internvl.key(image)}) == 3
    async with encoding(tiny_qwen25vl, dtype="bfloat16") as bfloat:
        assert bfloat.key(image) != qwen.key(image)


async def test_the_key_tells_weights_apart_by_their_content(tiny_qwen25vl: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copied, replaced = shutil.copytree(tiny_qwen25vl, tmp_path / "a"), shutil.copytree(tiny_qwen25vl, tmp_path / "b")
    os.utime(copied / "model.safetensors", (0, 0))
    weights = replaced / "model.safetensors"
    before = weights.stat()
    tensors = load_file(weights)
    name = min(name for name in tensors if name.startswith("visual."))
    save_file(tensors | {name: tensors[name] + 1}, weights, metadata={"format": "pt"})
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weights.stat().st_size == before.st_size

    image = sent(PICTURES[0])
    async with encoding(tiny_qwen25vl) as one, encoding(copied) as same, encoding(replaced) as other:
        assert one.key(image) == same.key(image)
        assert one.key(image) != other.key(image)
