"""Media through the encoders of Qwen2.5-VL and Qwen3-Omni, compared with transformers' towers called directly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import Qwen2_5_VLConfig, Qwen2VLImageProcessor, Qwen3OmniMoeConfig, WhisperFeatureExtractor
from transformers.utils import logging

from benchmarks.gpu_check.check import Check
from benchmarks.gpu_check.differences import relative_difference
from benchmarks.gpu_check.random_weights import build_random
from benchmarks.harness.media import random_audio, random_image
from benchmarks.harness.running import running
from cornserve.concurrency import gather_all
from cornserve_executors.device_thread import DeviceThread
from cornserve_executors.encoder.engine import EncoderEngine
from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen25VL
from cornserve_executors.encoder.families.qwen3_omni import Qwen3OmniAudio, Qwen3OmniVision
from cornserve_executors.encoder.families.registry import TransformersFamily
from cornserve_executors.encoder.loader import LoadedEncoder, build_empty_model
from cornserve_executors.encoder.media_inputs import media_inputs
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media, Modality

SIZE = {"shortest_edge": 56 * 56, "longest_edge": 16384 * 28 * 28}
"""The limits on the pixels of an image in both models."""
MAX_BATCH_PATCHES = 1 << 20
"""A budget that no batch of the check reaches."""
ROUNDS, ROUND_SECONDS = 3, 2
"""The largest number of measured runs, and the seconds after which no further one starts."""

BOUNDS = {"cuda": 0.05, "cpu": 1e-4}
"""The largest difference from transformers, relative to the norm of the embeddings. bfloat16 has steps of 0.8 %, which
add up over the layers, and kernels differ between sizes of batches."""


@dataclass(frozen=True, slots=True)
class _MediaSizes:
    batches: Sequence[int]
    sides: Sequence[int]
    """The width and height of images, in pixels."""
    seconds: Sequence[float]
    """The duration of audio."""


FULL = _MediaSizes((1, 8, 32), (224, 672, 1008), (1, 10, 30))
TINY = _MediaSizes((1, 3), (56, 84, 112), (0.5, 1, 2))


async def run(check: Check) -> None:
    sizes = TINY if check.is_tiny else FULL
    logging.set_verbosity_error()
    outside: list[str] = []
    for name, build in (("Qwen2.5-VL", _qwen25_vl), ("Qwen3-Omni", _qwen3_omni)):
        started = time.perf_counter()
        check.reset_peak_memory()
        encoders = build(check)
        check.report.add(f"{name}: made", seconds=time.perf_counter() - started, peak_gib=check.peak_gib)
        outside += await _EncoderMeasurement(check, sizes, name, encoders).run()
        del encoders
        check.free_memory()
    if outside:
        raise RuntimeError(f"embeddings differ from those of transformers: {', '.join(outside)}")


def _qwen25_vl(check: Check) -> dict[Modality, LoadedEncoder]:
    config = Qwen2_5_VLConfig(**check.config("qwen2.5-vl-7b"))
    return _encoders(check, config, {"image": Qwen25VL}, {"image": Qwen2VLImageProcessor(size=SIZE)})


def _qwen3_omni(check: Check) -> dict[Modality, LoadedEncoder]:
    config = Qwen3OmniMoeConfig(**check.config("qwen3-omni-30b-a3b"))
    half = [0.5, 0.5, 0.5]
    processors = {
        "image": Qwen2VLImageProcessor(size=SIZE, patch_size=16, image_mean=half, image_std=half),
        "audio": WhisperFeatureExtractor(feature_size=128, return_attention_mask=True),
    }
    return _encoders(check, config, {"image": Qwen3OmniVision, "audio": Qwen3OmniAudio}, processors)


def _encoders(
    check: Check, config: Any, families: Mapping[Modality, type[TransformersFamily]], processors: Mapping[str, Any]
) -> dict[Modality, LoadedEncoder]:
    model = build_random(lambda: build_empty_model(config, families.values(), check.dtype), check.device, check.dtype)
    return {name: LoadedEncoder(family(model, processors[name]), "random") for name, family in families.items()}


class _EncoderMeasurement:
    """The encoders of one model."""

    def __init__(self, check: Check, sizes: _MediaSizes, name: str, encoders: Mapping[Modality, LoadedEncoder]) -> None:
        self._check = check
        self._sizes = sizes
        self._name = name
        self._encoders = encoders
        self._device = DeviceThread()
        modalities: Any = tuple(encoders)
        task = EncoderTask(model_id=name, modality=modalities, max_batch_patches=MAX_BATCH_PATCHES)
        self._engine = EncoderEngine(encoders, task, EncoderStats(*encoders), self._device)
        self._outside: list[str] = []

    async def run(self) -> list[str]:
        """Returns the cases whose embeddings differ too much from those of transformers."""
        try:
            async with running(self._engine):
                await self._engine.warm_up()
                for label, media in self._media():
                    await self._measure(label, media)
        finally:
            self._engine.shutdown()
        return self._outside

    def _media(self) -> Iterator[tuple[str, list[Media]]]:
        """Yields the media of each size, enough for the largest batch."""
        numbers = range(max(self._sizes.batches))
        for side in self._sizes.sides:
            yield f"images of {side}x{side}", [random_image(number, side) for number in numbers]
        if "audio" in self._encoders:
            for seconds in self._sizes.seconds:
                yield f"audio of {seconds} s", [random_audio(number, seconds) for number in numbers]

    async def _measure(self, label: str, media: Sequence[Media]) -> None:
        family: Any = self._encoders[media[0].modality].family
        inputs = media_inputs(family)
        plans = [await self._engine.plan(medium, "plan") for medium in media]
        pairs = zip(media, plans, strict=True)
        prepared = await gather_all(asyncio.to_thread(inputs.prepare, medium, plan) for medium, plan in pairs)
        expected: list[torch.Tensor] = []
        seconds = 0.0
        for count in self._sizes.batches:
            case = f"{self._name}: {count} {label}"
            if not self._check.report.can_start(case, 16 * seconds):
                continue
            batch: Any = prepared[:count]
            further = batch[len(expected) :]
            call = partial(_call_transformers, family.model)
            expected += [await self._device.run(partial(call, medium)) for medium in further]
            self._check.reset_peak_memory()
            tower = await _shortest(partial(self._device.run, partial(family.encode, batch)))
            rows: list[torch.Tensor] = []

            async def encode(rows: list[torch.Tensor] = rows, count: int = count) -> None:
                rows[:] = await gather_all(map(self._encode, media[:count], plans[:count]))

            seconds = await _shortest(encode)
            difference = max(map(relative_difference, rows, expected[:count]))
            if difference > BOUNDS[self._check.device]:
                self._outside.append(case)
            self._check.report.add(
                case,
                tokens_each=plans[0].rows,
                tower_media_per_s=count / tower,
                engine_media_per_s=count / seconds,
                engine_ms=1e3 * seconds,
                largest_relative_difference=difference,
                bound=BOUNDS[self._check.device],
                peak_gib=self._check.peak_gib,
            )

    async def _encode(self, media: Media, plan: EncodingPlan) -> torch.Tensor:
        """Encodes a medium as an executor does, from its file to bytes on the host. Returns the embeddings."""
        destination = bytearray(self._engine.nbytes(media, plan))
        async with self._engine.encoded(media, plan, media.digest) as rows:
            await self._engine.write(rows, memoryview(destination))
            return rows


async def _shortest(work: Callable[[], Awaitable[object]]) -> float:
    """Returns the shortest duration of several runs in seconds, after one that is not measured."""
    await work()
    durations: list[float] = []
    while len(durations) < ROUNDS and sum(durations) < ROUND_SECONDS:
        started = time.perf_counter()
        await work()
        durations.append(time.perf_counter() - started)
    return min(durations)


def _call_transformers(model: Any, prepared: Any) -> torch.Tensor:
    """Returns the embeddings of one medium alone, on the host."""
    if prepared.plan.fields.keys() == {"image_grid_thw"}:
        grid = torch.tensor([prepared.plan.fields["image_grid_thw"]], device=model.device)
        output = model.visual(prepared.pixels.to(model.device), grid_thw=grid)
        return torch.cat([output.pooler_output, *getattr(output, "deepstack_features", ())], dim=-1).cpu()
    features = prepared.features.to(model.device)[None]
    mask = torch.ones(1, features.shape[2], dtype=torch.long, device=model.device)
    rows: torch.Tensor = model.get_audio_features(features, mask).last_hidden_state
    return rows.cpu()
