"""Stable Diffusion 3 and FLUX.1: images equal those of diffusers' own pipeline, and their steps take turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL.Image
import pytest
import pytest_asyncio

from cornserve.concurrency import gather_all
from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib import ImageGenerationRequest, ImageGenerator, ImageGeneratorOptions, ImageProgress
from tests.integration.image_generator.image_files import decoded, opened
from tests.models.cache import cached_model
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.image_generator.pipeline_engine import PipelineEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MODELS = Path(__file__).parents[2] / "models"


def image_request(prompt: str = "a cat", **fields: Any) -> ImageGenerationRequest:
    given: dict[str, Any] = {"prompt": prompt, "size": "64x64", "num_inference_steps": 4, "seed": 1}
    return ImageGenerationRequest(**given | fields)


REQUESTS = [
    image_request(),
    image_request("two blue squares", seed=2, size="96x64", num_inference_steps=6),
    image_request("ein 🌽", seed=3, size="64x128", num_inference_steps=3, negative_prompt="ugly", true_cfg_scale=5.0),
    image_request(seed=4, num_inference_steps=2, n=2, true_cfg_scale=1.0),
    image_request("one step", seed=5, num_inference_steps=1),
]


@asynccontextmanager
async def running(model: Path, stats: ImageGeneratorStats) -> AsyncIterator[PipelineEngine]:
    from cornserve_executors.image_generator.pipeline_engine import PipelineEngine
    from cornserve_executors.image_generator.select_engine import create_engine

    options = ImageGeneratorOptions(max_batch_images=3, max_pixels=128 * 128, max_steps=20)
    engine = create_engine(ImageGenerator(model_id=str(model), options=options), stats)
    assert isinstance(engine, PipelineEngine)
    work = asyncio.create_task(engine.run())
    await engine.warm_up()
    yield engine
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


@pytest.fixture(scope="module")
def tiny_flux() -> Path:
    return cached_model(MODELS / "tiny_flux.py", MODELS / "tiny_clip_t5.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="module")
def tiny_sd3() -> Path:
    return cached_model(MODELS / "tiny_sd3.py", MODELS / "tiny_clip_t5.py", MODELS / "byte_tokenizer.py")


@pytest.fixture(scope="module")
def stats() -> ImageGeneratorStats:
    return ImageGeneratorStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flux(tiny_flux: Path, stats: ImageGeneratorStats) -> AsyncIterator[PipelineEngine]:
    async with running(tiny_flux, stats) as engine:
        yield engine


def steps_of(stats: ImageGeneratorStats) -> float:
    values = {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}
    return values["cornserve_image_generator_steps_total"]


def expected(pipeline: Any, request: ImageGenerationRequest, defaults: dict[str, float]) -> list[bytes]:
    """Returns the pixels of diffusers' images. `defaults`: the pipeline's name of the guidance, and its default."""
    import torch

    [(guidance, default)] = defaults.items()
    arguments: dict[str, Any] = {guidance: default if request.true_cfg_scale is None else request.true_cfg_scale}
    if request.negative_prompt != " ":
        arguments["negative_prompt"] = request.negative_prompt
    first = request.seed or 0
    images: list[PIL.Image.Image] = [
        pipeline(
            request.prompt,
            width=request.width,
            height=request.height,
            num_inference_steps=request.num_inference_steps,
            generator=torch.Generator("cpu").manual_seed(seed),
            **arguments,
        ).images[0]
        for seed in range(first, first + request.n)
    ]
    return [image.tobytes() for image in images]


async def images(engine: PipelineEngine, request: ImageGenerationRequest, id: str = "r") -> list[bytes]:
    return [decoded(image).tobytes() for image in (await engine.generate(request, id)).images]


@pytest.mark.parametrize(
    ("model", "defaults"), [("tiny_sd3", {"guidance_scale": 7.0}), ("tiny_flux", {"true_cfg_scale": 1.0})]
)
async def test_images_equal_those_of_diffusers_while_others_are_drawn(
    model: str, defaults: dict[str, float], request: pytest.FixtureRequest
) -> None:
    from diffusers import DiffusionPipeline

    directory = request.getfixturevalue(model)
    pipeline = DiffusionPipeline.from_pretrained(directory)
    pipeline.set_progress_bar_config(disable=True)
    async with running(directory, ImageGeneratorStats()) as engine:
        run = engine._device.run  # The rounding of some kernels depends on the number of torch's threads.
        wanted = [await run(partial(expected, pipeline, drawing, defaults)) for drawing in REQUESTS]

        found = await gather_all(images(engine, drawing, str(number)) for number, drawing in enumerate(REQUESTS))

    assert found == wanted
    assert len({image for several in found for image in several}) == 6


async def test_images_of_two_requests_take_turns(flux: PipelineEngine) -> None:
    order: list[str] = []

    async def draw(name: str) -> None:
        async def send(progress: ImageProgress) -> None:
            order.append(name)

        await flux.generate(image_request(num_inference_steps=10), name, send)

    await gather_all([draw("a"), draw("b")])

    assert sorted(order) == ["a"] * 10 + ["b"] * 10
    assert {"a", "b"} == set(order[2:6]) == set(order[8:12])


async def test_previews_are_images_of_the_size_of_the_request(flux: PipelineEngine) -> None:
    received: list[ImageProgress] = []

    async def send(progress: ImageProgress) -> None:
        received.append(progress)

    one = image_request(size="96x64", num_inference_steps=6, partial_images=2)
    response = await flux.generate(one, "r", send)

    assert [(progress.step, progress.b64_json is not None) for progress in received] == [
        (step, step in (2, 4)) for step in range(1, 7)
    ]
    previews = [opened(progress.b64_json) for progress in received if progress.b64_json is not None]
    assert {image.size for image in previews} == {(96, 64)}
    assert len({image.tobytes() for image in [*previews, decoded(response.images[0])]}) == 3


async def test_a_cancelled_image_takes_no_further_step(flux: PipelineEngine, stats: ImageGeneratorStats) -> None:
    first_step = asyncio.Event()

    async def send(progress: ImageProgress) -> None:
        first_step.set()

    before = steps_of(stats)
    task = asyncio.create_task(flux.generate(image_request(num_inference_steps=20), "r", send))
    await first_step.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await images(flux, image_request(num_inference_steps=2))

    assert steps_of(stats) - before < 15


async def test_a_step_that_fails_ends_its_image_alone(flux: PipelineEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler

    step = FlowMatchEulerDiscreteScheduler.step

    def fail(scheduler: Any, output: Any, timestep: Any, sample: Any, **options: Any) -> Any:
        stepped = step(scheduler, output, timestep, sample, **options)
        if sample.shape[1] == 4 * 6 and scheduler.step_index == 2:
            raise ValueError("no memory is left")
        return stepped

    (alone,) = await images(flux, image_request())
    monkeypatch.setattr(FlowMatchEulerDiscreteScheduler, "step", fail)

    async def ignore(progress: ImageProgress) -> None: ...

    faulty = flux.generate(image_request(seed=2, size="64x96"), "b", ignore)
    found, error = await asyncio.gather(images(flux, image_request()), faulty, return_exceptions=True)

    assert found == [alone]
    assert isinstance(error, ValueError)
    await until(lambda: not any(thread.name == "image" for thread in threading.enumerate()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "x" * 600}, "prompt: has 601 tokens: the model reads at most 512"),
        (
            {"negative_prompt": "x" * 600, "true_cfg_scale": 2},
            "negative_prompt: has 601 tokens: the model reads at most 512",
        ),
        ({"size": "256x256"}, r"size: 256x256 has 65536 pixels: this app allows at most 16384 \(max_pixels\)"),
        (
            {"num_inference_steps": 21},
            r"num_inference_steps: must be at most 20 for this app \(max_steps\), not 21",
        ),
    ],
)
async def test_a_request_beyond_a_limit_is_rejected(flux: PipelineEngine, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await flux.generate(image_request(**fields), "r")


async def test_the_quality_determines_the_number_of_steps(flux: PipelineEngine) -> None:
    low = await images(flux, image_request(quality="low", num_inference_steps=None))

    assert low == await images(flux, image_request(num_inference_steps=20 // 4))


async def test_the_default_number_of_steps_is_within_the_limit_of_the_app(flux: PipelineEngine) -> None:
    assert await images(flux, image_request(num_inference_steps=None)) == await images(
        flux, image_request(num_inference_steps=20)
    )


async def test_guidance_is_an_input_of_a_distilled_model_alone(
    flux: PipelineEngine, tiny_sd3: Path, stats: ImageGeneratorStats
) -> None:
    assert await images(flux, image_request(guidance_scale=3.5)) == await images(flux, image_request())
    assert await images(flux, image_request(guidance_scale=9)) != await images(flux, image_request())
    async with running(tiny_sd3, stats) as sd3:
        with pytest.raises(InvalidRequestError, match="guidance_scale: this model is not guidance-distilled"):
            await sd3.generate(image_request(guidance_scale=3), "r")


async def test_an_incomplete_model_is_named(tiny_flux: Path, tmp_path: Path, stats: ImageGeneratorStats) -> None:
    from cornserve_executors.image_generator.select_engine import create_engine

    (tmp_path / "model_index.json").write_text((tiny_flux / "model_index.json").read_text())
    with pytest.raises(ExecutorStartError, match=f"{tmp_path} cannot be loaded"):
        create_engine(ImageGenerator(model_id=str(tmp_path)), stats)
