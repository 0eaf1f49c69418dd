"""Embeddings of an encoder engine, and their cache keys."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL.Image
import pytest

from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media
from cornserve_tasklib.media_options import MediaOptions
from tests.images import as_image, encode_file, image_from_file, noise
from tests.integration.encoder.engine import encode_rows, encoder_task, running_engine
from tests.integration.encoder.reference import TOLERANCE, transformers_rows
from tests.integration.engine_pool import EnginePool

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine, PreparedMedium
    from cornserve_executors.vllm.processed_media import ProcessedMedium

PICTURES = [noise(seed, *size) for seed, size in enumerate([(112, 84), (84, 112), (300, 200)])]


async def test_the_exif_orientation_is_applied(model: Path, engine: EncoderEngine) -> None:
    import torch

    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    rotated = noise(1, 300, 60)
    (expected,) = transformers_rows(model, [rotated.transpose(PIL.Image.Transpose.ROTATE_270)])

    torch.testing.assert_close(await encode_rows(engine, as_image(rotated, exif=exif)), expected, **TOLERANCE)


@pytest.fixture
def uncropped_internvl(tiny_internvl: Path, tmp_path: Path) -> Path:
    """A model whose image processor is configured not to crop, as in the checkpoints on the hub."""
    for file in tiny_internvl.iterdir():
        data = file.read_bytes().replace(b'"crop_to_patches": true', b'"crop_to_patches": false')
        (tmp_path / file.name).write_bytes(data)
    return tmp_path


async def test_internvl_images_are_cropped_even_if_the_image_processor_is_configured_not_to(
    uncropped_internvl: Path,
) -> None:
    import torch

    (expected,) = transformers_rows(uncropped_internvl, [PICTURES[2]])
    async with running_engine(encoder_task(uncropped_internvl)) as engine:
        torch.testing.assert_close(await encode_rows(engine, as_image(PICTURES[2])), expected, **TOLERANCE)


async def test_a_bfloat16_encoder_produces_bfloat16_rows(
    engines: EnginePool[EncoderEngine], tiny_qwen25vl: Path
) -> None:
    import torch

    (expected,) = transformers_rows(tiny_qwen25vl, [PICTURES[0]])
    engine = await engines.engine(encoder_task(tiny_qwen25vl, dtype="bfloat16"))
    rows = await encode_rows(engine, as_image(PICTURES[0]))

    assert rows.dtype == torch.bfloat16
    torch.testing.assert_close(rows.float(), expected, rtol=0.1, atol=0.2)


async def test_concurrent_requests_for_the_same_image_share_one_encoding(model: Path) -> None:
    import torch

    image, stats = as_image(PICTURES[0]), EncoderStats()
    async with running_engine(encoder_task(model), stats) as engine:
        all_prepared = [await engine.prepare(image, f"request-{number}") for number in range(5)]

        async def encode(prepared: PreparedMedium) -> Any:
            async with engine.encoded(image, prepared, "request") as rows:
                return rows.clone()

        first, *others = await asyncio.gather(*map(encode, all_prepared))

    assert all(torch.equal(first, other) for other in others)
    counted = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    assert counted["cornserve_encoder_items_total"] == 1
    assert counted["cornserve_encoder_deduplicated_total"] == 4


async def test_concurrent_requests_for_the_same_image_process_it_once(
    engine: EncoderEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cornserve_executors.encoder.vllm_tower import VllmTower

    processed: list[Media] = []
    process = VllmTower.process

    def counted(tower: VllmTower, media: Media) -> ProcessedMedium:
        processed.append(media)
        return process(tower, media)

    monkeypatch.setattr(VllmTower, "process", counted)
    image = as_image(PICTURES[0])
    for prepared in await asyncio.gather(*(engine.prepare(image, f"request-{number}") for number in range(5))):
        prepared.release()

    assert len(processed) == 1


async def test_media_that_cannot_be_sent_release_their_memory(
    engine: EncoderEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images of all failed requests together would exceed the memory for decoded media."""
    from cornserve_executors.encoder import engine as module
    from cornserve_executors.vllm.media_metadata import UnsendableItemError

    def fail(_: object) -> None:
        raise UnsendableItemError("the input pixels of the model has the type object")

    with monkeypatch.context() as patch:
        patch.setattr(module, "describe_medium", fail)
        for number in range(5):
            with pytest.raises(UnusableMediaError, match="has the type object"):
                await engine.prepare(as_image(noise(number, 1700, 1700)), "request")
    (await engine.prepare(as_image(PICTURES[0]), "request")).release()


def test_an_image_that_a_request_enlarges_counts_with_its_new_size(tiny_qwen25vl: Path) -> None:
    from cornserve_executors.encoder.vllm_tower import VllmTower

    tower = VllmTower.load(EncoderTask(model_id=str(tiny_qwen25vl), constant=True), "cpu")
    image = as_image(noise(1, 56, 56))

    assert tower.memory_pixels(image) < 100_000
    assert tower.memory_pixels(image.with_options(MediaOptions(min_pixels=150_000))) == 150_000


async def test_an_error_names_the_position_in_each_request(engine: EncoderEngine) -> None:
    cut = encode_file(PICTURES[2])[:-1000]
    images = [image_from_file(cut, "PNG", 300, 200, where=f"messages[{index}].content[0]") for index in range(2)]

    first, second = await asyncio.gather(*(encode_rows(engine, image) for image in images), return_exceptions=True)

    assert str(first).startswith("messages[0].content[0]: the PNG image cannot be decoded"), first
    assert str(second).startswith("messages[1].content[0]: the PNG image cannot be decoded"), second
    assert isinstance(first, UnusableMediaError)


async def test_an_unsupported_shape_is_rejected(engines: EnginePool[EncoderEngine], tiny_qwen25vl: Path) -> None:
    engine = await engines.engine(encoder_task(tiny_qwen25vl))
    with pytest.raises(UnusableMediaError, match=r"messages.* the model does not accept the image: .* aspect ratio"):
        await engine.prepare(as_image(PIL.Image.new("RGB", (2000, 4))), "request")


async def test_the_cache_key_depends_on_the_image_and_the_encoder(
    engines: EnginePool[EncoderEngine], tiny_qwen25vl: Path, tiny_internvl: Path
) -> None:
    image, other = as_image(PICTURES[0]), as_image(PICTURES[1])
    qwen = await engines.engine(encoder_task(tiny_qwen25vl))
    key, key_of_other = qwen.cache_key(image), qwen.cache_key(other)
    async with running_engine(encoder_task(tiny_qwen25vl)) as same:
        assert same.cache_key(image) == key
    internvl = await engines.engine(encoder_task(tiny_internvl))
    bfloat = await engines.engine(encoder_task(tiny_qwen25vl, dtype="bfloat16"))
    assert len({key, key_of_other, internvl.cache_key(image), bfloat.cache_key(image)}) == 4


@pytest.mark.slow
async def test_the_cache_key_depends_on_the_contents_of_the_weights(tiny_qwen25vl: Path, tmp_path: Path) -> None:
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

    image = as_image(PICTURES[0])
    async with (
        running_engine(encoder_task(tiny_qwen25vl)) as original,
        running_engine(encoder_task(copied)) as same,
        running_engine(encoder_task(replaced)) as other,
    ):
        assert original.cache_key(image) == same.cache_key(image)
        assert original.cache_key(image) != other.cache_key(image)
