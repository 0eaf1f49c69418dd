"""Asks the deployed vision-language model for the shapes of images."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from cornserve_demo.shapes import HELD_OUT, QUESTION, Shapes, describe, draw

if TYPE_CHECKING:
    import PIL.Image

    from cornserve import Client

MODEL = Path(__file__).with_name("reader-model")
"""The weights, as `python -m cornserve_demo.train` makes them."""

APP = "demo-reader"

_MAX_TOKENS = 12
_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class NamedImage:
    """An image, and what the model has answered."""

    image: PIL.Image.Image
    shown: str
    answer: str

    @property
    def is_correct(self) -> bool:
        return self.answer == self.shown

    @property
    def fields(self) -> dict[str, str]:
        return {"shown": self.shown, "answer": self.answer}

    def save(self, file: Path) -> None:
        self.image.save(file)


def sample(count: int, seed: int) -> list[tuple[Shapes, PIL.Image.Image]]:
    """Returns random images of pairs that the training data do not contain."""
    randomness = Random(f"held out {seed}")
    chosen = [randomness.choice(HELD_OUT) for _ in range(count)]
    return [(shapes, draw(shapes, randomness)) for shapes in chosen]


def name_image(client: Client, image: PIL.Image.Image) -> str:
    """Returns the answer of the deployed model, for example "red cross and blue square"."""
    with BytesIO() as file:
        image.save(file, "PNG")
        url = f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]
    messages = [{"role": "user", "content": parts}]
    completion = client.complete(APP, messages, temperature=0, max_tokens=_MAX_TOKENS)
    answer: str = completion["choices"][0]["message"]["content"]
    return answer


def name_images(client: Client, samples: Sequence[tuple[Shapes, PIL.Image.Image]]) -> list[NamedImage]:
    """Names images concurrently."""
    with ThreadPoolExecutor(_CONCURRENCY) as threads:
        answers = threads.map(lambda sample: name_image(client, sample[1]), samples)
        return [
            NamedImage(image, describe(shapes), answer)
            for (shapes, image), answer in zip(samples, answers, strict=True)
        ]
