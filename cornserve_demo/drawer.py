"""Asks the deployed image model for drawings, and judges them."""

from __future__ import annotations

from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from cornserve_demo.classifier import classify_pair
from cornserve_demo.shapes import HELD_OUT, Shapes, describe

if TYPE_CHECKING:
    import PIL.Image

    from cornserve import Client

SOURCE = Path(__file__).with_name("round_trip.py")

APP = "demo"

MODEL = Path(__file__).with_name("drawer-model")
"""The weights, as `python -m cornserve_demo.train` makes them."""

MODEL_APP = "demo-drawer"
"""The app of the model alone, which shares the executor of `APP`."""

_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class DrawnImage:
    """An image that the model has drawn."""

    image: PIL.Image.Image
    shapes: Shapes
    answer: str
    """The answer of the vision-language model about the image."""

    @property
    def prompt(self) -> str:
        return describe(self.shapes)

    @property
    def is_correct(self) -> bool:
        """Whether the rules of the classifier find the shapes."""
        return classify_pair(self.image) == self.shapes

    @property
    def fields(self) -> dict[str, str]:
        return {"prompt": self.prompt, "answer": self.answer}

    def save(self, file: Path) -> None:
        self.image.save(file)


def draw_images(client: Client, count: int, seed: int) -> list[DrawnImage]:
    """Draws random pairs that the training data do not contain, concurrently."""
    randomness = Random(f"drawn {seed}")
    chosen = [(randomness.choice(HELD_OUT), seed + number) for number in range(count)]
    with ThreadPoolExecutor(_CONCURRENCY) as threads:
        return list(threads.map(lambda pair: _draw_image(client, *pair), chosen))


def _draw_image(client: Client, shapes: Shapes, seed: int) -> DrawnImage:
    import PIL.Image

    drawn = client.invoke(APP, {"prompt": describe(shapes), "seed": seed})
    with BytesIO(b64decode(drawn["b64_json"])) as file:
        image = PIL.Image.open(file).convert("RGB")
    return DrawnImage(image, shapes, drawn["answer"])
