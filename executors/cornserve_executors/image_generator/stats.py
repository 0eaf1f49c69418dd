"""Prometheus metrics of an image generator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from cornserve.observe.histogram import TOKENS, Histogram


class ImageGeneratorStats:
    """Counts of images and steps, and durations."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting = 0
        self._images = 0
        self._steps = 0
        self._batch_images = Histogram(TOKENS)
        self._step_seconds = Histogram()
        self._image_seconds = Histogram()

    def set_items(self, *, running: int, waiting: int) -> None:
        self._running, self._waiting = running, waiting

    @contextmanager
    def step(self, images: int) -> Iterator[None]:
        """Measures a step of a batch, unless it fails."""
        started = time.perf_counter()
        yield
        self._step_seconds.observe(time.perf_counter() - started)
        self._batch_images.observe(images)
        self._steps += images

    @contextmanager
    def image(self) -> Iterator[None]:
        """Measures the generation of an image, unless it fails."""
        started = time.perf_counter()
        yield
        self._image_seconds.observe(time.perf_counter() - started)
        self._images += 1

    def metrics(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("cornserve_image_generator_running_images", "Images being denoised.", self._running)
        yield GaugeMetricFamily(
            "cornserve_image_generator_waiting_images", "Images waiting for a place in the batch.", self._waiting
        )
        yield CounterMetricFamily("cornserve_image_generator_images", "Images generated.", self._images)
        yield CounterMetricFamily(
            "cornserve_image_generator_steps", "Denoising steps, counted for each image of a batch.", self._steps
        )
        histograms = {
            "batch_images": ("Images per step.", self._batch_images),
            "step_seconds": ("Seconds the device takes for a step of a batch.", self._step_seconds),
            "image_seconds": ("Seconds from the end of text encoding to the image file.", self._image_seconds),
        }
        for name, (help, values) in histograms.items():
            yield values.family(f"cornserve_image_generator_{name}", help)
