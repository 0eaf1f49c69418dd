"""Decodes image files to pixels, identically in all executors.

An image that an encoder executor encodes must become the same pixels as one that vLLM encodes itself. This module
therefore decodes as vLLM does: it applies the EXIF orientation and composites transparent images on white.
transformers' `load_image` differs in one point: it drops the alpha channel without compositing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import NamedTuple

import PIL.Image
import PIL.ImageOps

from cornserve_executors.media import png
from cornserve_executors.media.avif_decoding import decode_avif
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.media import Image

_SIDEWAYS = frozenset({5, 6, 7, 8})
"""EXIF orientations that swap width and height."""
_ORIENTATION = 0x0112


class ImageSize(NamedTuple):
    """A size in pixels."""

    width: int
    height: int


def image_size(image: Image) -> ImageSize:
    """Returns the size that `decode_image` will produce, without decoding."""
    with _open_file(image, png.without_pixels if image.format == "PNG" else None) as file:
        width, height = file.size
        sideways = False
        with suppress(Exception):
            # `PngImageFile.getexif` also searches after the pixels, and decodes all pixels for this.
            # Pillow applies the orientation of TIFF files itself.
            sideways = file.format != "TIFF" and PIL.Image.Image.getexif(file).get(_ORIENTATION) in _SIDEWAYS
    return ImageSize(height, width) if sideways else ImageSize(width, height)


def decode_image(image: Image) -> PIL.Image.Image:
    """Decodes an image to RGB. Blocks.

    Raises `UnusableMediaError`, an `InvalidRequestError`, unless the first image of the file is complete.
    """
    with _open_file(image) as file:
        if file.format == "AVIF":
            return _as_rgb(decode_avif(image, file))
        file.load()
        if image.data is not None and file.format == "PNG" and png.lacks_rows(image.data.data, file):
            raise UnusableMediaError(image.where, "the PNG image cannot be decoded: it is truncated, rows are missing")
        return _as_rgb(file)


def _as_rgb(image: PIL.Image.Image) -> PIL.Image.Image:
    with suppress(Exception):  # Image viewers ignore a broken orientation, too.
        PIL.ImageOps.exif_transpose(image, in_place=True)
    if image.has_transparency_data:
        return _composite_on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


@contextmanager
def _open_file(image: Image, select: Callable[[bytes], bytes] | None = None) -> Iterator[PIL.Image.Image]:
    """Opens the file, or the part of it that `select` returns."""
    if image.data is None:
        raise UnusableMediaError(image.where, "the image has no data")
    try:
        data = image.data.data if select is None else select(image.data.data)
        # Use only the decoder of the format that the gateway detected.
        with PIL.Image.open(io.BytesIO(data), formats=[image.format]) as file:
            _check_size(image, file)
            yield file
    except UnusableMediaError:
        raise
    except PIL.UnidentifiedImageError:
        raise UnusableMediaError(image.where, f"not a valid {image.format} image") from None
    except (MemoryError, CancelledError):
        raise
    except Exception as error:  # Pillow's decoders raise many types.
        reason = str(error) or "its parts are inconsistent"
        raise UnusableMediaError(image.where, f"the {image.format} image cannot be decoded: {reason}") from error


def _check_size(image: Image, file: PIL.Image.Image) -> None:
    if file.size != (image.width, image.height):
        declared = f"{image.width}×{image.height}"
        raise UnusableMediaError(
            image.where, f"the image has {file.width}×{file.height} pixels, but {declared} were declared"
        )


def _composite_on_white(image: PIL.Image.Image) -> PIL.Image.Image:
    transparent = image.convert("RGBA")
    white = PIL.Image.new("RGB", transparent.size, (255, 255, 255))
    white.paste(transparent, mask=transparent.getchannel("A"))
    return white
