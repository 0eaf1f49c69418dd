"""Encodes media: decodes and processes them in parallel, then runs them on the device in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

import torch

from cornserve.concurrency import gather_all
from cornserve_executors import tensor_copies
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.encoder.stats import EncoderStats, EncodingWork
from cornserve_executors.encoder.video_parts import join_rows
from cornserve_executors.encoder.vllm_tower import PATCH_PIXELS, VllmTower
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.vllm.media_metadata import describe_medium
from cornserve_executors.vllm.processed_media import ProcessedMedium
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import EncodedMedia, Media

BATCH_PARTS = 64
"""The number of parts of long media that fill a batch. Other media wait for a part, so it is short on slow devices."""


class EncodingPlan:
    """The future result of encoding a medium.

    Keeps the processed medium, and its share of the memory for decoded media, until it is encoded or forgotten.
    """

    def __init__(self, processed: ProcessedMedium, memory: ExitStack) -> None:
        self.rows = processed.rows
        """Number of embeddings."""
        self.fields, self.prompt = describe_medium(processed)
        self._processed: ProcessedMedium | None = processed
        self._memory = memory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.forget()

    def describe(self, key: str) -> EncodedMedia:
        return EncodedMedia(key=key, rows=self.rows, fields=self.fields, prompt=self.prompt)

    def forget(self) -> None:
        """Frees the memory of the processed medium. It is processed again if it is encoded after all."""
        self._processed = None
        self._memory.close()

    def take(self) -> tuple[ProcessedMedium, ExitStack] | None:
        """Returns the processed medium and its memory, which the caller frees. None if it was forgotten."""
        if self._processed is None:
            return None
        taken = self._processed, self._memory.pop_all()
        self._processed = None
        return taken


class EncoderEngine:
    """Encodes media of one or several modalities. A batch can contain several."""

    def __init__(self, tower: VllmTower, config: EncoderTask, stats: EncoderStats, device: DeviceThread) -> None:
        self._tower = tower
        self._device = device
        self._stats = stats
        self._modalities = config.modalities
        # Media are processed in parallel, one thread each, next to the device.
        # An image that exceeds the batch budget counts as large.
        self._decode_pools = DecodePools(config.max_batch_patches * PATCH_PIXELS, partial(torch.set_num_threads, 1))
        self._batcher = Batcher[ProcessedMedium, torch.Tensor](
            self._encode_batch, self._device.thread, config.max_batch_patches, stats
        )
        self._fingerprints = {modality: tower.fingerprint(modality) for modality in config.modalities}
        self._part_patches = max(1, config.max_batch_patches // BATCH_PARTS)
        self._single_flight = SingleFlight[torch.Tensor]()
        self._is_constant = config.constant

    @classmethod
    def load(cls, config: EncoderTask, stats: EncoderStats) -> Self:
        """Loads the encoders. Blocks, and can run in any thread. Raises `ExecutorStartError`."""
        device = DeviceThread()
        return cls(VllmTower.load(config, device.name), config, stats, device)

    @property
    def dtype(self) -> str:
        return tensor_copies.dtype_name(self._tower.dtype)

    def cache_key(self, media: Media) -> str:
        """Returns a key of the embeddings: equal keys imply equal embeddings.

        Raises `UnusableMediaError` for a medium of another modality, like `plan`.
        """
        self._check_modality(media)
        return f"{self._fingerprints[media.modality][:16]}-{media.contents}"

    def shape(self, media: Media, plan: EncodingPlan) -> tuple[int, int]:
        return plan.rows, self._tower.row_size(media.modality)

    def nbytes(self, media: Media, plan: EncodingPlan) -> int:
        rows, columns = self.shape(media, plan)
        return rows * columns * int(self._tower.dtype.itemsize)

    async def run(self) -> None:
        """Encodes batches until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    async def warm_up(self) -> None:
        """Encodes a medium of each modality, so that torch and the processors complete their lazy initialization."""
        if self._is_constant:
            return
        for modality in self._modalities:
            sample = await asyncio.to_thread(self._tower.sample, modality)
            await asyncio.get_running_loop().run_in_executor(self._device.thread, self._encode_batch, [sample])

    async def plan(self, media: Media, request_id: str) -> EncodingPlan:
        """Decodes and processes a medium, once memory is available. Raises `UnusableMediaError`."""
        self._check_modality(media)
        pool = self._decode_pools.pool_for(self._tower.decoder.work(media))
        async with pool.reserve(self._tower.memory(media), request_id) as memory:
            with self._stats.decoding(media.modality), self._stats.preprocessing(media.modality):
                processed = await memory.run(partial(self._process, media))
            return EncodingPlan(processed, memory.keep())

    @asynccontextmanager
    async def encoded(self, media: Media, plan: EncodingPlan, request_id: str) -> AsyncIterator[torch.Tensor]:
        """Yields the embeddings on the device. Requests for the same medium share them until the block ends."""
        key = self.cache_key(media)
        if key in self._single_flight:
            self._stats.count_deduplicated(media.modality)
            plan.forget()
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

    def _check_modality(self, media: Media) -> None:
        if media.modality not in self._modalities:
            encoded = " and ".join(self._modalities)
            raise UnusableMediaError(media.where, f"this encoder encodes {encoded}, not {media.modality}")

    def _process(self, media: Media) -> ProcessedMedium:
        try:
            return self._tower.process(media)
        except InvalidRequestError:
            raise
        except ValueError as error:
            reason = f"the model does not accept the {media.modality}: {error.__cause__ or error}"
            raise UnusableMediaError(media.where, reason) from error

    async def _encode(self, media: Media, plan: EncodingPlan, request_id: str) -> torch.Tensor:
        if self._is_constant:
            return torch.zeros(self.shape(media, plan), dtype=self._tower.dtype)
        while (taken := plan.take()) is None:
            plan = await self.plan(media, request_id)
        processed, memory = taken
        with memory, self._stats.encoding(media.modality):
            rows = await self._encode_parts(processed, request_id)
        self._stats.count_encoded(media.modality, plan.rows)
        return rows

    async def _encode_parts(self, processed: ProcessedMedium, request_id: str) -> torch.Tensor:
        parts = self._tower.split(processed, self._part_patches)
        rows = await gather_all(
            self._batcher.encode(part, EncodingWork(request_id, part.modality, part.patches, len(parts) > 1))
            for part in parts
        )
        return rows[0] if len(rows) == 1 else await self._device.run(partial(join_rows, rows, processed.rows))

    def _encode_batch(self, media: Sequence[ProcessedMedium]) -> Sequence[torch.Tensor]:
        return run_on_device(partial(self._tower.encode, media))
