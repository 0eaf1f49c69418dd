"""Images in, embeddings out: decoding and preprocessing in parallel, then the device, a batch at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import PIL.Image
import torch

from cornserve_executors import copies
from cornserve_executors.base import EngineDeadError, OverloadedError
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.families.family import EncodingPlan, PreparedImage
from cornserve_executors.encoder.loader import load
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.images import ImageSize, UnusableImageError, decode_image, image_size
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.image import Image

PATCH_PIXELS = 14 * 14
"""In the families that are known here."""


class EncoderEngine:
    def __init__(self, config: EncoderTask, stats: EncoderStats) -> None:
        """Loads the encoder. Blocks until that is done; any thread will do."""
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._stats = stats
        loaded = load(config, self._device)
        self._family = loaded.family
        self._fingerprint = loaded.fingerprint
        cores = len(os.sched_getaffinity(0))
        # Images are prepared side by side, so each of them by one thread. On a CPU, one core is left to that.
        device_threads = min(torch.get_num_threads(), max(1, cores - 1))
        self._device_thread = ThreadPoolExecutor(1, "device", torch.set_num_threads, (device_threads,))
        # What is larger than a batch is large.
        self._lanes = DecodePools(config.max_batch_patches * PATCH_PIXELS, partial(torch.set_num_threads, 1))
        self._batcher = Batcher(self._encode, self._device_thread, config.max_batch_patches, stats)
        self._flights = SingleFlight[torch.Tensor]()

    @property
    def dtype(self) -> str:
        return copies.dtype_name(self._family.model.dtype)

    def key(self, image: Image) -> str:
        """Images of equal keys have equal embeddings."""
        return f"{self._fingerprint[:16]}-{image.digest}"

    def shape(self, plan: EncodingPlan) -> tuple[int, int]:
        return plan.rows, self._family.hidden_size

    def nbytes(self, plan: EncodingPlan) -> int:
        rows, columns = self.shape(plan)
        return rows * columns * int(self._family.model.dtype.itemsize)

    async def run(self) -> None:
        """The device's work, until it is cancelled or the device fails for good."""
        await self._batcher.run()

    def warm_up(self) -> None:
        """Pays for what torch and the processor set up at the first image. Blocks."""
        image = PIL.Image.new("RGB", (224, 224))
        prepared = PreparedImage(self._family.prepare(image), self._family.plan(ImageSize(*image.size)))
        self._device_thread.submit(self._encode, [prepared]).result()

    async def plan(self, image: Image) -> EncodingPlan:
        """What it will become, from its size alone."""
        return await asyncio.to_thread(self._plan, image)

    @asynccontextmanager
    async def encoded(self, image: Image, plan: EncodingPlan, request_id: str) -> AsyncIterator[torch.Tensor]:
        """Its rows, on the device. Who asks for the same image while the block lasts shares them."""
        if image.digest in self._flights:
            self._stats.shared()
        try:
            async with self._flights.join(image.digest, partial(self._make, image, plan, request_id)) as rows:
                yield rows
        except UnusableImageError as error:  # Of the one who asked first.
            raise UnusableImageError(image.where, error.reason) from error

    async def write(self, rows: torch.Tensor, destination: memoryview) -> None:
        await asyncio.to_thread(copies.write, rows, destination)

    def shutdown(self) -> None:
        """Blocks until what the device works on is done."""
        self._lanes.shutdown()
        self._device_thread.shutdown(cancel_futures=True)

    async def _make(self, image: Image, plan: EncodingPlan, request_id: str) -> torch.Tensor:
        # The more of those of the file, and those that the processor makes of them.
        pixels = max(image.width * image.height, plan.patches * PATCH_PIXELS)
        async with self._lanes.pool_for(pixels).enter(pixels, request_id) as lane:
            with self._stats.preparing():
                prepared = await lane.run(partial(self._prepare, image, plan))
            rows = await self._batcher.encode(prepared, plan.patches, request_id)
        self._stats.encoded(plan.rows)
        return rows

    def _plan(self, image: Image) -> EncodingPlan:
        try:
            return self._family.plan(image_size(image))
        except UnusableImageError:
            raise
        except ValueError as error:
            raise UnusableImageError(image.where, f"the model does not take it: {error}") from error

    def _prepare(self, image: Image, plan: EncodingPlan) -> PreparedImage:
        pixels = self._family.prepare(decode_image(image))
        return PreparedImage(pixels.to(self._family.model.dtype), plan)

    def _encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        try:
            with torch.inference_mode():
                rows = self._family.encode(images)
            if self._device == "cuda":
                torch.cuda.current_stream().synchronize()
        except torch.OutOfMemoryError as error:
            raise OverloadedError(f"the GPU has no memory for so large an image: {error}") from error
        except torch.AcceleratorError as error:
            raise EngineDeadError(str(error).splitlines()[0]) from error
        return rows
