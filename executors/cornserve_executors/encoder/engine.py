"""Encodes images: decodes and preprocesses them in parallel, then runs them on the device in batches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import PIL.Image
import torch

from cornserve_executors import tensor_copies
from cornserve_executors.base import EngineDeadError, OverloadedError
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.families.family import EncodingPlan, PreparedImage
from cornserve_executors.encoder.loader import load_encoder
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.image_decoding import ImageSize, UnusableImageError, decode_image, image_size
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.image import Image

PATCH_PIXELS = 14 * 14
"""Pixels per patch in all supported families."""


class EncoderEngine:
    def __init__(self, config: EncoderTask, stats: EncoderStats) -> None:
        """Loads the encoder. Blocks, and can run in any thread."""
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._stats = stats
        loaded = load_encoder(config, self._device)
        self._family = loaded.family
        self._fingerprint = loaded.fingerprint
        cores = len(os.sched_getaffinity(0))
        # Images are preprocessed in parallel, one thread each. On a CPU, the device leaves one core for that.
        device_threads = min(torch.get_num_threads(), max(1, cores - 1))
        self._device_thread = ThreadPoolExecutor(1, "device", torch.set_num_threads, (device_threads,))
        # An image that exceeds the batch budget counts as large.
        self._decode_pools = DecodePools(config.max_batch_patches * PATCH_PIXELS, partial(torch.set_num_threads, 1))
        self._batcher = Batcher(self._encode_batch, self._device_thread, config.max_batch_patches, stats)
        self._single_flight = SingleFlight[torch.Tensor]()
        self._is_constant = config.constant

    @property
    def dtype(self) -> str:
        return tensor_copies.dtype_name(self._family.model.dtype)

    def cache_key(self, image: Image) -> str:
        """Returns a key of the embeddings: equal keys imply equal embeddings."""
        return f"{self._fingerprint[:16]}-{image.digest}"

    def shape(self, plan: EncodingPlan) -> tuple[int, int]:
        return plan.rows, self._family.hidden_size

    def nbytes(self, plan: EncodingPlan) -> int:
        rows, columns = self.shape(plan)
        return rows * columns * int(self._family.model.dtype.itemsize)

    async def run(self) -> None:
        """Encodes batches until cancelled. Raises `EngineDeadError` when the device fails permanently."""
        await self._batcher.run()

    def warm_up(self) -> None:
        """Encodes an image, so that torch and the processor complete their lazy initialization. Blocks."""
        if self._is_constant:
            return
        image = PIL.Image.new("RGB", (224, 224))
        prepared = PreparedImage(self._family.prepare(image), self._family.plan(ImageSize(*image.size)))
        self._device_thread.submit(self._encode_batch, [prepared]).result()

    async def plan(self, image: Image) -> EncodingPlan:
        """Returns the plan for an image, without decoding it."""
        return await asyncio.to_thread(self._plan, image)

    @asynccontextmanager
    async def encoded(self, image: Image, plan: EncodingPlan, request_id: str) -> AsyncIterator[torch.Tensor]:
        """Yields the embeddings on the device. Requests for the same image share them until the block ends."""
        if image.digest in self._single_flight:
            self._stats.count_deduplicated()
        try:
            encode = partial(self._encode_image, image, plan, request_id)
            async with self._single_flight.join(image.digest, encode) as rows:
                yield rows
        except UnusableImageError as error:  # Names the position of the image in the first request.
            raise UnusableImageError(image.where, error.reason) from error

    async def write(self, rows: torch.Tensor, destination: memoryview) -> None:
        await asyncio.to_thread(tensor_copies.copy_to_buffer, rows, destination)

    def shutdown(self) -> None:
        """Blocks until the current batch and the images that are being decoded are done."""
        self._decode_pools.shutdown()
        self._device_thread.shutdown(cancel_futures=True)

    async def _encode_image(self, image: Image, plan: EncodingPlan, request_id: str) -> torch.Tensor:
        if self._is_constant:
            return torch.zeros(self.shape(plan), dtype=self._family.model.dtype)
        # The processor may enlarge an image, so count the larger of the two pixel numbers.
        pixels = max(image.width * image.height, plan.patches * PATCH_PIXELS)
        async with self._decode_pools.pool_for(pixels).reserve(pixels, request_id) as pool:
            with self._stats.preprocessing():
                prepared = await pool.run(partial(self._prepare, image, plan))
            rows = await self._batcher.encode(prepared, plan.patches, request_id)
        self._stats.count_encoded(plan.rows)
        return rows

    def _plan(self, image: Image) -> EncodingPlan:
        try:
            return self._family.plan(image_size(image))
        except UnusableImageError:
            raise
        except ValueError as error:
            raise UnusableImageError(image.where, f"the model does not accept the image: {error}") from error

    def _prepare(self, image: Image, plan: EncodingPlan) -> PreparedImage:
        pixels = self._family.prepare(decode_image(image))
        return PreparedImage(pixels.to(self._family.model.dtype), plan)

    def _encode_batch(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        try:
            with torch.inference_mode():
                rows = self._family.encode(images)
            if self._device == "cuda":
                torch.cuda.current_stream().synchronize()
        except torch.OutOfMemoryError as error:
            raise OverloadedError(f"the image does not fit into the GPU's memory: {error}") from error
        except torch.AcceleratorError as error:
            raise EngineDeadError(str(error).splitlines()[0]) from error
        return rows
