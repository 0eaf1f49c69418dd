"""Images of colored shapes, and their descriptions: the data of the demo model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import PIL.Image

SIZE = 64
"""The width and height of an image, in pixels."""

COLORS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 220),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 180),
    "black": (30, 30, 30),
}
QUESTION = "What is in the image?"
"""The question to the vision-language model."""

SHAPES = ("circle", "square", "triangle", "cross")

BACKGROUND = (255, 255, 255)

_SMOOTHING = 4
"""Images are drawn at this multiple of their size, so that edges are smooth."""

_HELD_OUT = 8
"""One of this many pairs of shapes is only used to evaluate."""


@dataclass(frozen=True, slots=True)
class Shape:
    color: str
    shape: str

    def __str__(self) -> str:
        return f"{self.color} {self.shape}"


Shapes = tuple[Shape, ...]
"""One or two shapes, from left to right."""

ALL_SHAPES = [Shape(color, shape) for color in COLORS for shape in SHAPES]


def describe(shapes: Shapes) -> str:
    """Returns for example "red cross and blue square"."""
    return " and ".join(map(str, shapes))


def known_words() -> str:
    """Returns the words of the descriptions, for users."""
    return f"the colors {', '.join(COLORS)}, and the shapes {', '.join(SHAPES)}"


def parse(text: str) -> Shapes:
    """Returns the shapes of a description. Raises `ValueError` with the known words for any other text."""
    shapes = tuple(map(_parse_shape, " ".join(text.lower().split()).split(" and ")))
    if None in shapes or len(shapes) > 2:
        raise ValueError(
            f'the model knows only {known_words()}: write one or two of them, such as "red cross and blue square"'
        )
    return tuple(filter(None, shapes))


def _parse_shape(text: str) -> Shape | None:
    words = text.split()
    words = words[1:] if words[:1] in (["a"], ["an"], ["the"]) else words
    match words:
        case [color, shape] if color in COLORS and shape in SHAPES:
            return Shape(color, shape)
    return None


def _pairs() -> Iterator[Shapes]:
    for left in ALL_SHAPES:
        for right in ALL_SHAPES:
            yield left, right


def _split() -> tuple[list[Shapes], list[Shapes]]:
    pairs = list(_pairs())
    random.Random(0).shuffle(pairs)
    held_out = len(pairs) // _HELD_OUT
    return [(shape,) for shape in ALL_SHAPES] + pairs[held_out:], pairs[:held_out]


TRAINED, HELD_OUT = _split()
"""The combinations of shapes to train with, and the pairs that no training sample contains."""


def draw(shapes: Shapes, randomness: random.Random) -> PIL.Image.Image:
    """Draws shapes side by side on white, at slightly random places and of slightly random sizes."""
    places = []
    for index in range(len(shapes)):
        x = SIZE * (2 * index + 1) / (2 * len(shapes)) + randomness.uniform(-2, 2)
        y = SIZE / 2 + randomness.uniform(-4, 4)
        places.append((x, y, randomness.uniform(10, 13)))
    return _draw(shapes, places)


def draw_shape(shape: Shape) -> PIL.Image.Image:
    """Draws a shape in the middle of an image."""
    return _draw((shape,), [(SIZE / 2, SIZE / 2, SIZE / 4)])


def _draw(shapes: Shapes, places: Sequence[tuple[float, float, float]]) -> PIL.Image.Image:
    """Draws shapes of given centers and radii."""
    import PIL.Image
    import PIL.ImageDraw

    image = PIL.Image.new("RGB", (SIZE * _SMOOTHING, SIZE * _SMOOTHING), BACKGROUND)
    canvas = PIL.ImageDraw.Draw(image)
    for shape, (x, y, radius) in zip(shapes, places, strict=True):
        _draw_shape(canvas, shape, x, y, radius)
    return image.resize((SIZE, SIZE), PIL.Image.Resampling.BOX)


def _draw_shape(canvas: PIL.ImageDraw.ImageDraw, shape: Shape, x: float, y: float, radius: float) -> None:
    """Draws a shape around a center. Lengths are in pixels of the image."""

    def area(width: float, height: float) -> list[float]:
        return [_SMOOTHING * edge for edge in (x - width, y - height, x + width, y + height)]

    color = COLORS[shape.color]
    match shape.shape:
        case "circle":
            canvas.ellipse(area(radius, radius), color)
        case "square":
            canvas.rectangle(area(0.9 * radius, 0.9 * radius), color)
        case "triangle":
            left, top, right, bottom = area(radius, radius)
            canvas.polygon([(left, bottom), ((left + right) / 2, top), (right, bottom)], color)
        case "cross":
            canvas.rectangle(area(radius, 0.3 * radius), color)
            canvas.rectangle(area(0.3 * radius, radius), color)
