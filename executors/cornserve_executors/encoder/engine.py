"""Encodes media: decodes and preprocesses them in parallel, then runs them on the device in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch

from cornserve.concurrency import gather_all
from cornserve_executors import tensor_copies
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_executors.encoder.families.registry import AnyFamily
from cornserve_executors.encoder.loader import LoadedEncoder, load_encoders
from cornserve_executors.encoder.media_inputs import PATCH_PIXELS, MediaInputs, media_inputs
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.encoder.stats import EncoderStats, EncodingWork
from cornserve_executors.media.cancellation import run_in_thread
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media, Modality

BATCH_PARTS = 64
"""The number of parts of long media that fill a batch. Other media wait for a part, so it is short on slow devices."""


@dataclass(frozen=True, slots=True)
class _Encoder:
    """The encoder of one modality."""

    family: AnyFamily
    fingerprint: str
    inputs: MediaInputs[Any]
    batcher: Batcher[Any, torch.Tensor]


class EncoderEngine:
    """Encodes media of one or several modalities.

    A batch contains media of one tower: images and videos of most families, or audio. The batches of several towers
    alternate on the device.
    """

    def __init__(
        self,
        encoders: Mapping[Modality, LoadedEncoder],
        config: EncoderTask,
        stats: EncoderStats,
        device: DeviceThread,
    ) -> None:
        """Keeps the encoders of the task's modalities, whose model is on the device."""
        self._device = device
        self._stats = stats
        self._modalities = config.modalities
        # Media are preprocessed in parallel, one thread each, next to the device.
        # An image that exceeds the batch budget counts as large.
        self._decode_pools = DecodePools(config.max_batch_patches * PATCH_PIXELS, partial(torch.set_num_threads, 1))
        # Families with the same method `encode` batch their media together.
        self._batchers = {
            type(encoder.family).encode: Batcher[Any, torch.Tensor](
                partial(_encode_batch, encoder.family), self._device.thread, config.max_batch_patches, stats
            )
            for encoder in encoders.values()
        }
        self._encoders = {
            modality: _Encoder(
                encoder.family,
                encoder.fingerprint,
                media_inputs(encoder.family),
                self._batchers[type(encoder.family).encode],
            )
            for modality, encoder in encoders.items()
        }
        self._part_patches = max(1, config.max_batch_patches // BATCH_PARTS)
        self._single_flight = SingleFlight[torch.Tensor]()
        self._is_constant = config.constant

    @classmethod
    def load(cls, config: EncoderTask, stats: EncoderStats) -> Self:
        """Loads the encoders. Blocks, and can run in any thread."""
        device = DeviceThread()
        return cls(load_encoders(config, device.name), config, stats, device)

    def _encoder(self, media: Media) -> _Encoder:
        if media.modality not in self._encoders:
            encoded = " and ".join(self._modalities)
            raise UnusableMediaError(media.where, f"this encoder encodes {encoded}, not {media.modality}")
        return self._encoders[media.modality]

    @property
    def _dtype(self) -> torch.dtype:
        """The dtype of the model that all encoders are part of."""
        return self._encoders[self._modalities[0]].family.dtype

    @property
    def dtype(self) -> str:
        return tensor_copies.dtype_name(self._dtype)

    def cache_key(self, media: Media) -> str:
        """Returns a key of the embeddings: equal keys imply equal embeddings.

        Raises `UnusableMediaError` for a medium of another modality, like all methods.
        """
        return f"{self._encoder(media).fingerprint[:16]}-{media.contents}"

    def shape(self, media: Media, plan: EncodingPlan) -> tuple[int, int]:
        return plan.rows, self._encoder(media).family.row_size

    def nbytes(self, media: Media, plan: EncodingPlan) -> int:
        rows, columns = self.shape(media, plan)
        return rows * columns * int(self._dtype.itemsize)

    async def run(self) -> None:
        """Encodes batches until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await gather_all(batcher.run() for batcher in self._batchers.values())

    async def warm_up(self) -> None:
        """Encodes a medium of each modality, so that torch and the processors complete their lazy initialization."""
        if self._is_constant:
            return
        for encoder in self._encoders.values():
            sample = await asyncio.to_thread(encoder.inputs.sample)
            run = asyncio.get_running_loop().run_in_executor
            await run(self._device.thread, _encode_batch, encoder.family, [sample])

    async def plan(self, media: Media, request_id: str) -> EncodingPlan:
        """Returns the plan for a medium. Raises `UnusableMediaError`."""
        inputs = self._encoder(media).inputs
        plan, size = partial(_plan, inputs, media), inputs.planned_size(media)
        if size == 0:
            return await run_in_thread(plan)
        async with self._decode_pools.pool_for(size).reserve(size, request_id) as pool:
            with self._stats.decoding(media.modality):
                return await pool.run(plan)

    @asynccontextmanager
    async def encoded(self, media: Media, plan: EncodingPlan, request_id: str) -> AsyncIterator[torch.Tensor]:
        """Yields the embeddings on the device. Requests for the same medium share them until the block ends."""
        key = self.cache_key(media)
        if key in self._single_flight:
            self._stats.count_deduplicated(media.modality)
        try:
            encode = partial(self._encode, media, plan, request_id)
            async with self._single_flight.join(key, encode) as rows:
                yield rows
        except UnusableMediaError as error:  # Names the position of the medium in the first request.
            raise UnusableMediaError(media.where, error.reason) from error

    async def write(self, rows: torch.Tensor, destination: memoryview) -> None:
        await asyncio.to_thread(tensor_copies.copy_to_buffer, rows, destination)

    def shutdown(self) -> None:
        """Blocks until the current batch and the media that are being decoded are done."""
        self._decode_pools.shutdown()
        self._device.shutdown()

    async def _encode(self, media: Media, plan: EncodingPlan, request_id: str) -> torch.Tensor:
        if self._is_constant:
            return torch.zeros(self.shape(media, plan), dtype=self._dtype)
        encoder = self._encoder(media)
        work, size = encoder.inputs.work(media, plan), encoder.inputs.decoded_size(media, plan)
        async with self._decode_pools.pool_for(work).reserve(size, request_id) as pool:
            with self._stats.decoding(media.modality), self._stats.preprocessing(media.modality):
                prepared = await pool.run(partial(encoder.inputs.prepare, media, plan))
            with self._stats.encoding(media.modality):
                rows = await self._encode_parts(encoder, prepared, media.modality, request_id)
        self._stats.count_encoded(media.modality, plan.rows)
        return rows

    async def _encode_parts(
        self, encoder: _Encoder, prepared: Any, modality: Modality, request_id: str
    ) -> torch.Tensor:
        parts = encoder.inputs.split(prepared, self._part_patches)
        rows = await gather_all(
            encoder.batcher.encode(part, EncodingWork(request_id, modality, part.plan.patches, len(parts) > 1))
            for part in parts
        )
        return rows[0] if len(rows) == 1 else await self._device.run(partial(encoder.inputs.join, rows))


def _encode_batch(family: AnyFamily, media: Sequence[Any]) -> Sequence[torch.Tensor]:
    return run_on_device(partial(family.encode, media))


def _plan(inputs: MediaInputs[Any], media: Media) -> EncodingPlan:
    try:
        return inputs.plan(media)
    except InvalidRequestError:
        raise
    except ValueError as error:
        raise UnusableMediaError(media.where, f"the model does not accept the {media.modality}: {error}") from error
