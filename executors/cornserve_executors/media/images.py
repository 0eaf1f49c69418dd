"""Image files as pixels, the same for every executor.

An image that is encoded apart from the language model has to become the same pixels as one that vLLM encodes itself. So
this does what vLLM does with a file: turns it upright as its EXIF orientation says, and lays what is transparent on
white. transformers' `load_image` agrees on everything but that: it drops the transparency, and shows what lies below.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import PIL.Image
import PIL.ImageOps

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.media import png
from cornserve_tasklib.image import Image

_SIDEWAYS = frozenset({5, 6, 7, 8})
"""EXIF orientations in which width and height change places."""
_ORIENTATION = 0x0112


class UnusableImageError(InvalidRequestError):
    """An image cannot be used."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


class ImageSize(NamedTuple):
    width: int
    height: int


def image_size(image: Image) -> ImageSize:
    """As it will be opened. Decodes nothing."""
    with _read(image, png.without_pixels if image.format == "PNG" else None) as file:
        width, height = file.size
        sideways = False
        with suppress(Exception):
            # A PNG file's own `getexif` would look for more behind the pixels, and decode them on the way.
            sideways = PIL.Image.Image.getexif(file).get(_ORIENTATION) in _SIDEWAYS
    return ImageSize(height, width) if sideways else ImageSize(width, height)


def decode_image(image: Image) -> PIL.Image.Image:
    """Decodes it, to RGB. Blocks for as long as that takes.

    Raises `UnusableImageError`, an `InvalidRequestError`, for what is no whole still image in RGB, grey or a palette.
    """
    with _read(image) as file:
        file.load()
        if image.data is not None and file.format == "PNG" and png.lacks_rows(image.data.data, file):
            raise UnusableImageError(image.where, "the PNG image cannot be decoded: it is truncated, rows are missing")
        with suppress(Exception):  # Orientation is not worth an error: no viewer makes one of it.
            PIL.ImageOps.exif_transpose(file, in_place=True)
        if file.has_transparency_data:
            return _on_white(file)
        return file if file.mode == "RGB" else file.convert("RGB")


@contextmanager
def _read(image: Image, part: Callable[[bytes], bytes] | None = None) -> Iterator[PIL.Image.Image]:
    if image.data is None:
        raise UnusableImageError(image.where, "the image came without its bytes")
    try:
        data = image.data.data if part is None else part(image.data.data)
        # Of Pillow's decoders, an image meets the one that its gateway named, and no other.
        with PIL.Image.open(io.BytesIO(data), formats=[image.format]) as file:
            _check(image, file)
            yield file
    except UnusableImageError:
        raise
    except PIL.UnidentifiedImageError:
        raise UnusableImageError(image.where, f"this is no {image.format} image") from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise whatever their parsing stumbles over.
        reason = str(error) or "its parts do not fit together"
        raise UnusableImageError(image.where, f"the {image.format} image cannot be decoded: {reason}") from error


def _check(image: Image, file: PIL.Image.Image) -> None:
    if file.size != (image.width, image.height):
        declared = f"{image.width}×{image.height}"
        raise UnusableImageError(
            image.where, f"the image has {file.width}×{file.height} pixels, and was said to have {declared}"
        )
    # Phones write further pictures behind the one that counts; Pillow calls such a JPEG file MPO.
    if getattr(file, "is_animated", False) and file.format != "MPO":
        raise UnusableImageError(image.where, f"the {image.format} image is animated; send one frame as a still image")
    if file.mode in ("CMYK", "LAB", "HSV"):
        raise UnusableImageError(image.where, f"the image's colours are {file.mode}; convert it to RGB")


def _on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    transparent = image.convert("RGBA")
    white = PIL.Image.new("RGB", transparent.size, (255, 255, 255))
    white.paste(transparent, mask=transparent.getchannel("A"))
    return white
