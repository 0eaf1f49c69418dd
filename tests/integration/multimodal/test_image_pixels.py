"""The pixels of images are those of vLLM's loader, of which a gateway reads the same sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import PIL.Image
import pytest

from cornserve.gateway.media.image_header import read_image_header
from cornserve_executors.media.image_decoding import decode_image, image_size
from tests.images import encode_file, image_from_file, noise

PICTURE = noise(0, 30, 20)
SIDEWAYS = PIL.Image.Exif()
SIDEWAYS[0x0112] = 6  # the orientation
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "JPEG2000")


def animation(format: str) -> bytes:
    first, *others = [noise(seed, 30, 20) for seed in range(3)]
    return encode_file(first, format, save_all=True, append_images=others)


FILES: dict[str, Callable[[], bytes]] = {
    **{format: partial(encode_file, PICTURE, format) for format in FORMATS},
    **{f"one pixel in {format}": partial(encode_file, noise(1, 1, 1), format) for format in FORMATS},
    **{f"3×2 pixels in {format}": partial(encode_file, noise(1, 3, 2), format) for format in FORMATS},
    **{f"animated {format}": partial(animation, format) for format in ("PNG", "WEBP", "GIF", "AVIF")},
    **{
        f"transparent {format}": partial(encode_file, PICTURE.convert("RGBA"), format)
        for format in ("PNG", "WEBP", "AVIF", "BMP", "TIFF", "JPEG2000")
    },
    **{
        f"sideways {format}": partial(encode_file, PICTURE, format, exif=SIDEWAYS.tobytes())
        for format in ("PNG", "JPEG", "WEBP", "AVIF")
    },
    "sideways TIFF": partial(encode_file, PICTURE, "TIFF", tiffinfo={0x0112: 6}),
    "pages": partial(animation, "TIFF"),
    "compressed TIFF": partial(encode_file, PICTURE, "TIFF", compression="tiff_lzw"),
    "big TIFF": partial(encode_file, PICTURE, "TIFF", big_tiff=True),
    "CMYK": partial(encode_file, PICTURE.convert("CMYK"), "JPEG"),
    "CMYK in TIFF": partial(encode_file, PICTURE.convert("CMYK"), "TIFF"),
    "palette in BMP": partial(encode_file, PICTURE.convert("P"), "BMP"),
    "code stream": partial(encode_file, PICTURE, "JPEG2000", no_jp2=True),
    "16 bits": partial(encode_file, PICTURE.convert("L").convert("I").convert("I;16"), "TIFF"),
    "multi-picture": partial(animation, "MPO"),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_vllm(name: str) -> None:
    from vllm.multimodal.media.image import ImageMediaIO

    data = FILES[name]()
    image = image_from_file(data, *read_image_header(data))

    decoded = decode_image(image)

    expected = np.asarray(ImageMediaIO().load_bytes(data).media)
    assert image_size(image) == decoded.size
    np.testing.assert_array_equal(np.asarray(decoded), expected)
