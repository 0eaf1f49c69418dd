"""Qwen-Image-Edit: images equal those of diffusers' own pipeline, in any batch."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL.Image
import pytest
import pytest_asyncio

from cornserve.concurrency import gather_all
from cornserve.task import Blob
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib import (
    EditPromptEncoder,
    Image,
    ImageDenoiser,
    ImageEditor,
    ImageEditRequest,
    ImageGeneratorOptions,
    ImageProgress,
    LatentDecoder,
    SourceEncoder,
)
from cornserve_tasklib.engine import Dtype

if TYPE_CHECKING:
    from cornserve_executors.image_generator.editing_engine import ImageEditorEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


SOURCE_PIXELS = 256 * 256


def picture(width: int, height: int, color: str = "teal") -> Image:
    """A PNG file of two colors."""
    drawn = PIL.Image.new("RGB", (width, height), color)
    drawn.paste("gold", (0, 0, width // 2, height // 3))
    file = BytesIO()
    drawn.save(file, "PNG")
    return Image(
        data=Blob(file.getvalue()), format="PNG", width=width, height=height, digest=f"{width}{color}", where="image"
    )


def request(image: Image, prompt: str = "make it red", **fields: Any) -> ImageEditRequest:
    given: dict[str, Any] = {"prompt": prompt, "size": "64x64", "num_inference_steps": 2, "seed": 1}
    return ImageEditRequest(image=image, **given | fields)


REQUESTS = [
    request(picture(64, 48)),
    request(picture(48, 64, "navy"), "a hat", seed=2, size="96x64", num_inference_steps=3, true_cfg_scale=1.0),
]


@pytest.fixture(scope="module", autouse=True)
def small_sources() -> Iterator[None]:
    """Scales images to 256×256 pixels instead of 1024×1024, also in diffusers' pipeline: a CPU takes a minute for
    the larger ones."""
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit

    from cornserve_executors.image_generator import editing

    dimensions = pipeline_qwenimage_edit.calculate_dimensions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(editing, "SOURCE_PIXELS", SOURCE_PIXELS)
        patch.setattr(
            pipeline_qwenimage_edit, "calculate_dimensions", lambda area, ratio: dimensions(SOURCE_PIXELS, ratio)
        )
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_qwenimageedit: Path) -> AsyncIterator[ImageEditorEngine]:
    from cornserve_executors.image_generator.editing_engine import ImageEditorEngine

    options = ImageGeneratorOptions(max_pixels=128 * 128, max_steps=20)
    engine = ImageEditorEngine.load(
        ImageEditor(model_id=str(tiny_qwenimageedit), options=options), ImageGeneratorStats()
    )
    work = asyncio.create_task(engine.run())
    yield engine
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


def expected_image(pipeline: Any, request: ImageEditRequest) -> bytes:
    import torch

    assert request.image.data is not None
    fields = request.model_dump(
        include={"prompt", "negative_prompt", "num_inference_steps", "true_cfg_scale"}, exclude_none=True
    )
    if request.true_cfg_scale == 1:
        del fields["negative_prompt"]
    (image,) = pipeline(
        **fields,
        image=PIL.Image.open(BytesIO(request.image.data.data)),
        width=request.width,
        height=request.height,
        generator=torch.Generator("cpu").manual_seed(request.seed or 0),
    ).images
    pixels: bytes = image.tobytes()
    return pixels


async def edited(engine: ImageEditorEngine, request: ImageEditRequest, id: str = "r") -> bytes:
    (image,) = (await engine.edit(request, id)).images
    return PIL.Image.open(BytesIO(b64decode(image.b64_json))).tobytes()


async def test_images_equal_those_of_diffusers_in_any_batch(
    engine: ImageEditorEngine, tiny_qwenimageedit: Path
) -> None:
    from diffusers import QwenImageEditPipeline

    pipeline = QwenImageEditPipeline.from_pretrained(tiny_qwenimageedit)
    pipeline.set_progress_bar_config(disable=True)
    run = engine._device.run  # The rounding of some kernels depends on the number of torch's threads.
    expected = [await run(partial(expected_image, pipeline, request)) for request in REQUESTS]

    found = await gather_all(edited(engine, request, str(number)) for number, request in enumerate(REQUESTS))

    assert found == expected
    assert found[0] != await edited(engine, request(picture(64, 48, "navy")))


class SplitEditor:
    """The components in separate engines."""

    def __init__(self, model: str) -> None:
        from cornserve_executors.image_generator.component_engines import ImageDenoiserEngine, LatentDecoderEngine
        from cornserve_executors.image_generator.editing_component_engines import (
            EditPromptEncoderEngine,
            SourceEncoderEngine,
        )

        self.prompts = EditPromptEncoderEngine(EditPromptEncoder(model_id=model))
        self.sources = SourceEncoderEngine(SourceEncoder(model_id=model))
        self.denoiser = ImageDenoiserEngine(ImageDenoiser(model_id=model), ImageGeneratorStats())
        self.decoder = LatentDecoderEngine(LatentDecoder(model_id=model))
        self.engines = (self.prompts, self.sources, self.denoiser, self.decoder)

    async def edited(self, request: ImageEditRequest, id: str) -> bytes:
        embeddings = await self.prompts.encode(request, id)
        source, info = await self.sources.encode(request, id)
        sized = request.model_copy(update={"size": info.size if request.size == "auto" else request.size})
        latents = await self.denoiser.denoise(sized, embeddings, [request.seed or 0], id, None, source)
        [file] = await self.decoder.decode(sized, latents)
        return PIL.Image.open(BytesIO(b64decode(file))).tobytes()


async def test_components_in_separate_engines_edit_as_one_engine_does(
    engine: ImageEditorEngine, tiny_qwenimageedit: Path
) -> None:
    split = SplitEditor(str(tiny_qwenimageedit))
    work = [asyncio.create_task(component.run()) for component in split.engines]
    await gather_all(component.warm_up() for component in split.engines)

    found = await gather_all(split.edited(request, str(number)) for number, request in enumerate(REQUESTS))

    assert found == [await edited(engine, request) for request in REQUESTS]
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    for component in split.engines:
        component.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_constant_encoders_return_zeros_of_the_shapes_of_the_real_ones(
    tiny_qwenimageedit: Path, dtype: Dtype
) -> None:
    from cornserve_executors.image_generator import editing_component_engines as engines

    prompts = EditPromptEncoder(model_id=str(tiny_qwenimageedit), dtype=dtype)
    sources = SourceEncoder(model_id=str(tiny_qwenimageedit), dtype=dtype)
    real = engines.EditPromptEncoderEngine(prompts), engines.SourceEncoderEngine(sources)
    constant = (
        engines.ConstantEditPromptEngine(prompts.input_source()),
        engines.ConstantSourceEngine(sources.input_source()),
    )

    for each in REQUESTS:
        expected, zeros = await real[0].encode(each, "r"), await constant[0].encode(each, "r")
        assert (zeros.negative is None) == (expected.negative is None)
        assert_zeros_like(zeros.joined(), expected.joined())
        assert zeros.prompt.shape == expected.prompt.shape
        (expected_source, size), (source, found_size) = (
            await real[1].encode(each, "r"),
            await constant[1].encode(each, "r"),
        )
        assert (source.shape, found_size) == (expected_source.shape, size)
        assert_zeros_like(source.latents, expected_source.latents)
    for component in (*real, *constant):
        component.shutdown()


def assert_zeros_like(found: Any, expected: Any) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert not found.any()
    assert expected.any()


async def test_a_denoiser_reads_tensors_of_another_dtype(tiny_qwenimageedit: Path) -> None:
    """Constant encoders on a CPU publish float32; a denoiser on a GPU computes in bfloat16."""
    from cornserve_executors.image_generator import editing_component_engines as engines
    from cornserve_executors.image_generator.component_engines import ImageDenoiserEngine

    model = str(tiny_qwenimageedit)
    prompts = engines.ConstantEditPromptEngine(EditPromptEncoder(model_id=model).input_source())
    sources = engines.ConstantSourceEngine(SourceEncoder(model_id=model).input_source())
    options = ImageGeneratorOptions(dtype="bfloat16")
    denoiser = ImageDenoiserEngine(ImageDenoiser(model_id=model, options=options), ImageGeneratorStats())
    work = asyncio.create_task(denoiser.run())
    embeddings, (source, _) = await prompts.encode(REQUESTS[0], "r"), await sources.encode(REQUESTS[0], "r")

    latents = await denoiser.denoise(REQUESTS[0], embeddings, [0], "r", None, source)

    assert str(embeddings.prompt.dtype) == "torch.float32"
    assert str(latents.dtype) == "torch.bfloat16"
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    for component in (prompts, sources, denoiser):
        component.shutdown()


@pytest.mark.parametrize("width", [2000, 4])
async def test_constant_encoders_reject_the_images_that_the_real_ones_reject(
    tiny_qwenimageedit: Path, width: int
) -> None:
    from cornserve_executors.image_generator import editing_component_engines as engines

    model = str(tiny_qwenimageedit)
    prompts = engines.ConstantEditPromptEngine(EditPromptEncoder(model_id=model).input_source())
    sources = engines.ConstantSourceEngine(SourceEncoder(model_id=model).input_source())
    narrow = request(picture(width, 2004 - width))
    for engine in (prompts, sources):
        with pytest.raises(InvalidRequestError, match="are too long and narrow: crop the image"):
            await engine.encode(narrow, "r")
        engine.shutdown()


async def test_each_step_of_an_edit_is_reported(engine: ImageEditorEngine) -> None:
    steps: list[ImageProgress] = []

    async def send(progress: ImageProgress) -> None:
        steps.append(progress)

    await engine.edit(REQUESTS[0].model_copy(update={"partial_images": 1}), "steps", send)

    assert [step.step for step in steps] == [1, 2]
    assert [step.b64_json is not None for step in steps] == [True, False]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (request(picture(2000, 4)), "image: 2000×4 pixels are too long and narrow: crop the image"),
        (request(picture(64, 64), size="auto"), r"size: 256x256 has 65536 pixels: this app allows at most 16384"),
        (
            request(picture(64, 64).model_copy(update={"data": Blob(b"GIF89a")})),
            "image: ",
        ),
    ],
)
async def test_an_image_that_cannot_be_edited_is_rejected(
    engine: ImageEditorEngine, wrong: ImageEditRequest, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await engine.edit(wrong, "wrong")
