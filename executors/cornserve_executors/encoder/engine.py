"""Encodes media: decodes and processes them in parallel, then runs them on the device in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Self

import torch

from cornserve.concurrency import gather_all
from cornserve.due_queue import NO_DUE_TIME, DueTime
from cornserve.weighted_semaphore import Reservation
from cornserve_executors import tensor_copies
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.device_thread import DeviceThread, run_on_device
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.encoder.stats import EncoderStats, EncodingWork
from cornserve_executors.encoder.video_parts import join_rows
from cornserve_executors.encoder.vllm_tower import VllmTower
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.errors import UnusableMediaError, rejection_reason
from cornserve_executors.vllm.media_metadata import describe_medium
from cornserve_executors.vllm.processed_media import PATCH_PIXELS, ProcessedMedium
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import EncodedMedia, Media, MediaField, PromptUpdates

BATCH_PARTS = 64
"""The number of parts of long media that fill a batch. Other media wait for a part, so it is short on slow devices."""


class PreparedMedium:
    """A processed medium that waits to be encoded. It holds its share of the memory for decoded media.

    Args:
        fields: see `EncodedMedia`.
        prompt: see `EncodedMedia`.
        memory: released when the medium is encoded or released.
    """

    def __init__(
        self,
        processed: ProcessedMedium,
        fields: Mapping[str, MediaField],
        prompt: PromptUpdates,
        memory: Reservation,
    ) -> None:
        self.rows = processed.rows
        """Number of embeddings."""
        self._fields = fields
        self._prompt = prompt
        self._held: tuple[ProcessedMedium, Reservation] | None = (processed, memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def describe(self, key: str) -> EncodedMedia:
        return EncodedMedia(key=key, rows=self.rows, fields=self._fields, prompt=self._prompt)

    def take(self) -> tuple[ProcessedMedium, Reservation] | None:
        """Returns the processed medium and its memory, which the caller then owns. None if they were released."""
        held, self._held = self._held, None
        return held

    def release(self) -> None:
        """Frees the processed medium and its memory. It is processed again if it is encoded after all."""
        if (held := self.take()) is not None:
            _, memory = held
            memory.release()


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
        self._processing = SingleFlight[tuple[ProcessedMedium, Mapping[str, MediaField], PromptUpdates]]()
        self._encoding = SingleFlight[torch.Tensor]()
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

        Raises `UnusableMediaError` for a medium of another modality, like `prepare`.
        """
        self._check_modality(media)
        return f"{self._fingerprints[media.modality][:16]}-{media.contents}"

    def shape(self, media: Media, prepared: PreparedMedium) -> tuple[int, int]:
        return prepared.rows, self._tower.row_size(media.modality)

    def nbytes(self, media: Media, prepared: PreparedMedium) -> int:
        rows, columns = self.shape(media, prepared)
        return rows * columns * int(self._tower.dtype.itemsize)

    async def run(self) -> None:
        """Encodes batches until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    async def warm_up(self) -> None:
        """Encodes a medium of each modality, so that torch and the processors complete their lazy initialization."""
        if self._is_constant:
            return
        for sample in self._tower.samples.values():
            await asyncio.get_running_loop().run_in_executor(self._device.thread, self._encode_batch, [sample])

    async def prepare(self, media: Media, request_id: str) -> PreparedMedium:
        """Decodes and processes a medium, once memory is available. Raises `UnusableMediaError`.

        Concurrent calls for the same medium share the work.
        """
        key = self.cache_key(media)
        pool = self._decode_pools.pool_for(self._tower.decode_pixels(media))
        memory = await pool.reserve(self._tower.memory_pixels(media), request_id)
        process = partial(pool.run, partial(self._process, media))
        try:
            with self._stats.decoding(media.modality), _named(media):
                async with self._processing.join(key, process) as (processed, fields, prompt):
                    return PreparedMedium(processed, fields, prompt, memory)
        except BaseException:
            memory.release()
            raise

    @asynccontextmanager
    async def encoded(
        self,
        media: Media,
        prepared: PreparedMedium,
        request_id: str,
        due: DueTime = NO_DUE_TIME,
    ) -> AsyncIterator[torch.Tensor]:
        """Yields the embeddings on the device. Requests for the same medium share them until the block ends."""
        key = self.cache_key(media)
        if key in self._encoding:
            self._stats.count_deduplicated(media.modality)
            prepared.release()
        encode = partial(self._encode, media, prepared, request_id, due)
        with _named(media):
            async with self._encoding.join(key, encode) as rows:
                yield rows

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

    def _process(self, media: Media) -> tuple[ProcessedMedium, Mapping[str, MediaField], PromptUpdates]:
        try:
            processed = self._tower.process(media)
            return processed, *describe_medium(processed)
        except InvalidRequestError:
            raise
        except ValueError as error:
            reason = f"the model does not accept the {media.modality}: {rejection_reason(error)}"
            raise UnusableMediaError(media.where, reason) from error

    async def _encode(self, media: Media, prepared: PreparedMedium, request_id: str, due: DueTime) -> torch.Tensor:
        if self._is_constant:
            return torch.zeros(self.shape(media, prepared), dtype=self._tower.dtype)
        taken = prepared.take() or (await self.prepare(media, request_id)).take()
        assert taken is not None
        processed, memory = taken
        parts = self._tower.split(processed, self._part_patches)
        # The traceback of a cancellation keeps this frame, which must not keep the pixels.
        del taken, processed
        with memory, self._stats.encoding(media.modality):
            rows = await self._encode_parts(parts, prepared.rows, request_id, due)
        self._stats.count_encoded(media.modality, prepared.rows)
        return rows

    async def _encode_parts(
        self, parts: list[ProcessedMedium], rows: int, request_id: str, due: DueTime
    ) -> torch.Tensor:
        """Returns the embeddings of a medium. Empties the list of its parts."""
        works = [EncodingWork(request_id, part.modality, part.patches, len(parts) > 1, due) for part in parts]
        encoding = [self._batcher.encode(part, work) for part, work in zip(parts, works, strict=True)]
        parts.clear()
        encoded = await gather_all(encoding)
        return encoded[0] if len(encoded) == 1 else await self._device.run(partial(join_rows, encoded, rows))

    def _encode_batch(self, media: Sequence[ProcessedMedium]) -> Sequence[torch.Tensor]:
        return run_on_device(partial(self._tower.encode, media))


@contextmanager
def _named(media: Media) -> Iterator[None]:
    """Names the position of a medium in errors of shared work, which name that of the first request."""
    try:
        yield
    except UnusableMediaError as error:
        raise UnusableMediaError(media.where, error.reason) from error
