"""Recognizes drawn shapes by rules, to judge images that a model has drawn."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cornserve_demo.shapes import COLORS, SHAPES, SIZE, Shape, Shapes, draw_shape

if TYPE_CHECKING:
    import PIL.Image

_BACKGROUND_BRIGHTNESS = 170
"""The lowest value of the darkest channel of a pixel without a shape."""

_MASK_SIZE = 24
"""The width and height to which the pixels of a shape are scaled."""

_MIN_SHAPE = 6
"""The minimum width and height of a shape, in pixels."""


def classify_pair(image: PIL.Image.Image) -> Shapes | None:
    """Returns the shapes of the left and the right half, or None if half of the image is empty."""
    left = _classify(image.crop((0, 0, SIZE // 2, SIZE)))
    right = _classify(image.crop((SIZE // 2, 0, SIZE, SIZE)))
    return None if left is None or right is None else (left, right)


def _classify(half: PIL.Image.Image) -> Shape | None:
    mask = _mask(half)
    box = mask.getbbox()
    if box is None or min(box[2] - box[0], box[3] - box[1]) < _MIN_SHAPE:
        return None
    return Shape(color=_color(half, mask), shape=_shape(mask))


def _mask(image: PIL.Image.Image) -> PIL.Image.Image:
    """Returns an image that is 255 at the pixels of shapes, and 0 elsewhere."""
    from PIL import ImageChops

    red, green, blue = image.split()
    darkest = ImageChops.darker(ImageChops.darker(red, green), blue)
    return darkest.point(lambda value: 255 if value < _BACKGROUND_BRIGHTNESS else 0)


def _color(image: PIL.Image.Image, mask: PIL.Image.Image) -> str:
    """Returns the color that is nearest to the mean of the pixels of a shape."""
    from PIL import ImageStat

    mean = ImageStat.Stat(image, mask).mean
    return min(COLORS, key=lambda name: sum((a - b) ** 2 for a, b in zip(mean, COLORS[name], strict=True)))


def _shape(mask: PIL.Image.Image) -> str:
    """Returns the shape with the most similar mask."""
    pixels = _scaled(mask)
    return max(SHAPES, key=lambda shape: _similarity(pixels, _template(shape)))


def _scaled(mask: PIL.Image.Image) -> list[bool]:
    cut = mask.crop(mask.getbbox()).resize((_MASK_SIZE, _MASK_SIZE))
    return [value > 127 for value in cut.tobytes()]


@cache
def _template(shape: str) -> list[bool]:
    return _scaled(_mask(draw_shape(Shape("black", shape))))


def _similarity(first: list[bool], second: list[bool]) -> float:
    """Returns the intersection over the union."""
    pairs = list(zip(first, second, strict=True))
    return sum(a and b for a, b in pairs) / sum(a or b for a, b in pairs)
