"""Workloads of a real model of an image encoder and a language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.harness.strategies.workloads import Paths, draw_block, draw_types, name_paths
from cornserve.bench.workload_chats import GeneratedChat
from cornserve_planner.requests.request import WorkloadImage, WorkloadRequest
from cornserve_planner.workload.request_files import write_requests


@dataclass(frozen=True, slots=True)
class ModelWorkload:
    """Chats with images of new content each time.

    Args:
        model: the model directory.
        share: share of the chats that have images.
        images: images of these chats.
        side: width and height of an image in pixels.
    """

    model: Path
    name: str
    share: float
    images: int
    side: int
    text_tokens: int
    output_tokens: int

    @property
    def strategies(self) -> dict[str, Paths]:
        return name_paths("image_encoder+video_encoder", "llm")

    def write_app(self, directory: Path) -> Path:
        return self.model

    def profile_arguments(self, directory: Path) -> tuple[str, ...]:
        return "--workload", str(self.write_shares(directory))

    def write_shares(self, directory: Path) -> Path:
        path = directory / f"{self.name}.jsonl"
        if not path.exists():
            block = enumerate(draw_block(self.share))
            write_requests(path, [self._request(second, has_images) for second, has_images in block])
        return path

    def draw_requests(self, seed: int) -> Iterator[bytes]:
        random = Random(seed)
        templates = {images: self._template(images) for images in (False, True)}
        return (templates[has_images].make(random) for has_images in draw_types(self.share, seed))

    def _template(self, has_images: bool) -> GeneratedChat:
        images = ((self.side, self.side),) * self.images if has_images else ()
        return GeneratedChat(self.text_tokens, images, self.output_tokens)

    def _request(self, second: int, has_images: bool) -> WorkloadRequest:
        image = WorkloadImage(width=self.side, height=self.side)
        return WorkloadRequest(
            arrival=second,
            text_tokens=self.text_tokens,
            images=(image,) * self.images if has_images else (),
            output_tokens=self.output_tokens,
        )


def model_workloads(model: Path) -> tuple[ModelWorkload, ...]:
    return (
        ModelWorkload(model, "encoder-heavy", share=0.9, images=3, side=224, text_tokens=16, output_tokens=4),
        ModelWorkload(model, "balanced", share=0.6, images=2, side=224, text_tokens=32, output_tokens=16),
        ModelWorkload(model, "text-heavy", share=0.1, images=1, side=224, text_tokens=64, output_tokens=32),
    )
