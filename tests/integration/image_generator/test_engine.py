"""Qwen-Image: images equal those of diffusers' own pipeline, in any batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import PIL.Image
import PIL.ImageChops
import pytest
import pytest_asyncio
from prometheus_client import Metric

from cornserve.concurrency import gather_all
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib import (
    ImageGenerationRequest,
    ImageGenerator,
    ImageGeneratorOptions,
    ImageProgress,
)
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.image_generator.image_files import decoded, opened
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.image_generator.denoiser import DenoisedImage
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MAX_IMAGES = 4


def request(prompt: str = "a cat", **fields: Any) -> ImageGenerationRequest:
    given: dict[str, Any] = {"prompt": prompt, "size": "64x64", "num_inference_steps": 4, "seed": 1}
    return ImageGenerationRequest(**given | fields)


REQUESTS = [
    request(),
    request("two blue squares on a red sea", seed=2, size="96x64", num_inference_steps=6, true_cfg_scale=1.0),
    request("x" * 60, seed=3, size="64x128", num_inference_steps=3, negative_prompt="blurred, ugly"),
    request("fish", seed=4, num_inference_steps=2, true_cfg_scale=7.5),
    request(seed=5, size="16x16", num_inference_steps=9),
    request("ein Vogel über dem Meer 🌽", seed=6, size="80x48", n=2, true_cfg_scale=1.0),
]


@pytest.fixture(scope="module")
def stats() -> ImageGeneratorStats:
    return ImageGeneratorStats()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tiny_qwenimage: Path, stats: ImageGeneratorStats) -> AsyncIterator[ImageGeneratorEngine]:
    from cornserve_executors.image_generator.engine import ImageGeneratorEngine

    options = ImageGeneratorOptions(max_batch_images=MAX_IMAGES, max_pixels=128 * 128, max_steps=20, max_images=9)
    engine = ImageGeneratorEngine.load(ImageGenerator(model_id=str(tiny_qwenimage), options=options), stats)
    work = asyncio.create_task(engine.run())
    await engine.warm_up()
    yield engine
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    engine.shutdown()


@pytest.fixture(scope="module")
def pipeline(tiny_qwenimage: Path, engine: ImageGeneratorEngine) -> Any:
    """diffusers' own pipeline, unchanged."""
    from diffusers import QwenImagePipeline

    pipeline = QwenImagePipeline.from_pretrained(tiny_qwenimage)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def expected_images(pipeline: Any, request: ImageGenerationRequest, output_type: str = "pil") -> list[Any]:
    """Returns the images of diffusers, or with "latent" their latents."""
    import torch

    fields = request.model_dump(
        include={"prompt", "negative_prompt", "num_inference_steps", "true_cfg_scale"}, exclude_none=True
    )
    if request.true_cfg_scale == 1:
        del fields["negative_prompt"]
    seeds = range(request.seed or 0, (request.seed or 0) + request.n)
    size = {"width": request.width, "height": request.height}
    call = partial(pipeline, **fields, **size, output_type=output_type)
    return [call(generator=torch.Generator("cpu").manual_seed(seed)).images[0] for seed in seeds]


async def images(engine: ImageGeneratorEngine, request: ImageGenerationRequest, id: str = "r") -> list[bytes]:
    return [decoded(image).tobytes() for image in (await engine.generate(request, id)).images]


async def value(stats: ImageGeneratorStats, name: str) -> float:
    return {sample.name: sample.value for metric in stats.metrics() for sample in metric.samples}[
        f"cornserve_image_generator_{name}"
    ]


async def test_images_equal_those_of_diffusers_in_any_batch(
    engine: ImageGeneratorEngine, pipeline: Any, stats: ImageGeneratorStats
) -> None:
    # In the engine's thread, because the rounding of some kernels depends on the number of torch's threads.
    run = engine._device.run
    expected = [
        [image.tobytes() for image in await run(partial(expected_images, pipeline, request))] for request in REQUESTS
    ]
    steps, seen = await value(stats, "steps_total"), await value(stats, "batch_images_count")

    found = await gather_all(images(engine, request, str(number)) for number, request in enumerate(REQUESTS))

    assert found == expected
    assert len({image for several in found for image in several}) == 7
    steps, batches = await value(stats, "steps_total") - steps, await value(stats, "batch_images_count") - seen
    assert steps == sum(request.n * (request.num_inference_steps or 0) for request in REQUESTS)
    assert batches < steps / 2  # Images that run alone have one batch for each step.


@pytest.mark.parametrize(
    ("failure", "expected_error"), [("ValueError", "ValueError"), ("torch.OutOfMemoryError", "OverloadedError")]
)
async def test_a_step_that_fails_for_one_image_is_not_repeated_for_the_others(
    engine: ImageGeneratorEngine, pipeline: Any, monkeypatch: pytest.MonkeyPatch, failure: str, expected_error: str
) -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler

    step, failed = FlowMatchEulerDiscreteScheduler.step, request(seed=2, size="64x96")

    def fail(scheduler: Any, output: Any, timestep: Any, sample: Any, **options: Any) -> Any:
        stepped = step(scheduler, output, timestep, sample, **options)
        if sample.shape[1] == 4 * 6 and scheduler.step_index == 2:
            raise resolve_name(failure if "." in failure else f"builtins.{failure}")("no memory is left")
        return stepped

    run = engine._device.run
    (expected,) = await run(partial(expected_images, pipeline, REQUESTS[0]))
    monkeypatch.setattr(FlowMatchEulerDiscreteScheduler, "step", fail)

    found, error = await asyncio.gather(images(engine, REQUESTS[0]), images(engine, failed), return_exceptions=True)

    assert found == [expected.tobytes()]
    assert type(error).__name__ == expected_error


async def test_latents_equal_those_of_diffusers_bit_for_bit(tiny_qwenimage: Path, pipeline: Any) -> None:
    import torch

    _, found = denoised_in_one_batch(tiny_qwenimage, row_by_row=True)

    for request, image in zip(REQUESTS, found, strict=True):
        (expected,) = expected_images(pipeline, request.model_copy(update={"n": 1}), "latent")
        assert torch.equal(image.latents[0], expected)


@pytest.mark.slow
async def test_padded_batches_equal_diffusers_within_a_bound(tiny_qwenimage: Path, pipeline: Any) -> None:
    """GPUs run images of one size together, with padded prompts."""
    import torch

    from cornserve_executors.image_generator.pipeline import decode_latents

    batched, found = denoised_in_one_batch(tiny_qwenimage, row_by_row=False)

    for request, image in zip(REQUESTS, found, strict=True):
        with torch.inference_mode():
            decoded = decode_latents(batched, image.latents, request.width, request.height)
        difference = PIL.ImageChops.difference(decoded, expected_images(pipeline, request)[0])
        assert max(difference.tobytes()) <= 1


def denoised_in_one_batch(model: Path, *, row_by_row: bool) -> tuple[Any, list[DenoisedImage]]:
    """Returns a pipeline, and the first image of each request after its last step."""
    import torch

    from cornserve_executors.image_generator.denoiser import Denoiser
    from cornserve_executors.image_generator.pipeline import encode_prompts, load_pipeline

    pipeline = load_pipeline(ImageGenerator(model_id=str(model)), "auto", "cpu")
    denoiser = Denoiser(pipeline, "cpu", max_steps=20, row_by_row=row_by_row)
    with torch.inference_mode():
        batch = [denoiser.start(request, encode_prompts(pipeline, request), request.seed or 0) for request in REQUESTS]
        running = batch
        while running := [image for image in running if not image.is_done]:
            denoiser.run_step(running)
    return pipeline, batch


async def test_the_default_number_of_steps_is_within_the_limit_of_the_app(engine: ImageGeneratorEngine) -> None:
    default = await images(engine, request(num_inference_steps=None))

    assert default == await images(engine, request(num_inference_steps=20))


async def test_the_following_images_have_the_following_seeds(engine: ImageGeneratorEngine) -> None:
    both = await images(engine, request(seed=8, n=2))

    assert [*await images(engine, request(seed=8)), *await images(engine, request(seed=9))] == both


async def test_progress_has_all_steps_and_previews(engine: ImageGeneratorEngine) -> None:
    sent: list[ImageProgress] = []

    async def send(progress: ImageProgress) -> None:
        sent.append(progress)

    given = request(n=2, num_inference_steps=6, partial_images=2)
    response = await engine.generate(given, "progress", send)

    for image in range(2):
        steps = [progress for progress in sent if progress.image == image]
        assert [(progress.step, progress.steps) for progress in steps] == [(step, 6) for step in range(1, 7)]
        previews = {progress.step: progress.b64_json for progress in steps if progress.b64_json is not None}
        assert list(previews) == [2, 4]
        final = decoded(response.images[image])
        distances = [_distance(opened(preview), final) for preview in previews.values()]
        assert 0 < distances[1] < distances[0]
    assert response.images == (await engine.generate(request(n=2, num_inference_steps=6), "without")).images


def _distance(image: PIL.Image.Image, other: PIL.Image.Image) -> int:
    return sum(PIL.ImageChops.difference(image, other).tobytes())


async def test_a_caller_that_does_not_read_progress_delays_no_step(
    engine: ImageGeneratorEngine, stats: ImageGeneratorStats
) -> None:
    reads = asyncio.Event()

    async def send(progress: ImageProgress) -> None:
        await reads.wait()

    before = await value(stats, "steps_total")
    slow = asyncio.create_task(engine.generate(request(num_inference_steps=7), "slow", send))

    async def all_steps_are_done() -> bool:
        return await value(stats, "steps_total") == before + 7

    await until(all_steps_are_done)
    assert not slow.done()
    reads.set()
    assert len((await slow).images) == 1


async def test_a_random_seed_is_reported(engine: ImageGeneratorEngine) -> None:
    response = await engine.generate(request(seed=None), "random")

    (image,) = response.images
    assert await images(engine, request(seed=image.seed)) == [decoded(image).tobytes()]
    assert (response.usage.prompt_tokens > 0, response.usage.completion_tokens) == (True, 4 * 4)


@pytest.mark.parametrize(("format", "options"), [("jpeg", {"output_compression": 30}), ("webp", {})])
async def test_the_format_of_the_file_can_be_chosen(
    engine: ImageGeneratorEngine, format: str, options: dict[str, Any]
) -> None:
    response = await engine.generate(request(output_format=format, **options), "format")

    image = decoded(response.images[0])
    assert (image.format, image.size) == (format.upper(), (64, 64))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": "256x128"}, r"size: 256x128 has 32768 pixels: this app allows at most 16384"),
        ({"num_inference_steps": 21}, "num_inference_steps: must be at most 20"),
        ({"num_inference_steps": 1}, "num_inference_steps: must be at least 2 for this model"),
        ({"n": 10}, r"n: must be at most 9 for this app \(max_images\), not 10"),
        ({"prompt": "x" * 1100}, r"prompt: has \d+ tokens: the model reads at most 1024"),
        ({"negative_prompt": "x" * 1100}, r"negative_prompt: has \d+ tokens"),
    ],
)
async def test_a_request_beyond_a_limit_is_rejected(
    engine: ImageGeneratorEngine, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        await engine.generate(request(**fields), "limit")


async def test_a_cancelled_request_stops_between_steps(
    engine: ImageGeneratorEngine, stats: ImageGeneratorStats
) -> None:
    work = asyncio.create_task(engine.generate(request(num_inference_steps=20, n=9, size="128x128"), "cancelled"))
    started = await value(stats, "steps_total")

    async def runs() -> bool:
        return await value(stats, "steps_total") > started

    async def is_idle() -> bool:
        return await value(stats, "running_images") == await value(stats, "waiting_images") == 0

    await until(runs)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(is_idle)

    assert await value(stats, "steps_total") - started < 10 * 20


async def test_requests_with_many_images_do_not_delay_others(engine: ImageGeneratorEngine) -> None:
    many = asyncio.create_task(images(engine, request(n=9, num_inference_steps=10), "many"))
    few = asyncio.create_task(images(engine, request(num_inference_steps=10), "few"))

    await few

    assert not many.done()
    assert len(await many) == 9


async def test_every_metric_is_documented(stats: ImageGeneratorStats) -> None:
    def described(metric: Metric) -> tuple[str, str, frozenset[str]]:
        labels = {label for sample in metric.samples for label in sample.labels}
        return metric.name, metric.type, frozenset(labels - {"le"})

    assert {described(metric) for metric in stats.metrics()} == documented_metrics("## Image generators")
