"""Prometheus metrics of an image generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.observe.histogram import TOKENS
from cornserve_executors.engine_stats import EngineStats, counter, gauge, histogram


class ImageGeneratorStats(EngineStats, prefix="cornserve_image_generator"):
    """Counts of images and steps, and durations."""

    running_images = gauge("Images being denoised.")
    waiting_images = gauge("Images waiting for a place in the batch.")
    images = counter("Images generated.")
    steps = counter("Denoising steps, counted for each image of a batch.")
    batch_images = histogram("Images per step.", TOKENS)
    step_seconds = histogram("Seconds the device takes for a step of a batch.")
    image_seconds = histogram("Seconds from the end of text encoding to the image file.")

    def set_items(self, *, running: int, waiting: int) -> None:
        self.running_images, self.waiting_images = running, waiting

    @contextmanager
    def step(self, images: int) -> Iterator[None]:
        """Measures a step of a batch, unless it fails."""
        with self.step_seconds.time():
            yield
        self.batch_images.observe(images)
        self.steps += images

    @contextmanager
    def image(self) -> Iterator[None]:
        """Measures the generation of an image, unless it fails."""
        with self.image_seconds.time():
            yield
        self.images += 1
