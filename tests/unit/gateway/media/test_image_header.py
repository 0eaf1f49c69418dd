"""Image headers are read as decoders read them, and invalid images are errors."""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from io import BytesIO
from random import Random
from typing import Any

import pytest
from PIL import Image

from cornserve.gateway.media.errors import MediaError
from cornserve.gateway.media.formats.gif import max_blocks
from cornserve.gateway.media.image_header import read_image_header
from cornserve.gateway.media.inspection import RULES
from cornserve.limits import Limits
from tests.unit.gateway.image_files import animated_file, image_file, png_of_size

FORMATS = ["PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "JPEG2000"]

VARIANTS = [
    *((format, size, "RGB", {}) for format in FORMATS for size in [(1, 1), (5, 7), (640, 480), (1, 300), (3000, 17)]),
    *(("PNG", (9, 5), mode, {}) for mode in ("1", "L", "P", "RGBA", "LA", "I;16")),
    ("JPEG", (9, 5), "L", {}),
    ("JPEG", (90, 50), "RGB", {"progressive": True}),
    ("JPEG", (90, 50), "RGB", {"exif": b"Exif\0\0" + b"x" * 60_000, "icc_profile": b"\xff\xd9" * 50_000}),
    ("WEBP", (90, 50), "RGB", {"lossless": True}),
    ("WEBP", (90, 50), "RGBA", {}),
    ("WEBP", (90, 50), "RGB", {"exif": b"Exif\0\0"}),
    ("GIF", (90, 50), "P", {"comment": b"x" * 600, "transparency": 3}),
    ("JPEG", (90, 50), "CMYK", {}),
    ("BMP", (90, 50), "P", {}),
    ("TIFF", (90, 50), "RGB", {"compression": "tiff_lzw"}),
    ("TIFF", (90, 50), "CMYK", {"big_tiff": True}),
    ("JPEG2000", (90, 50), "L", {"no_jp2": True}),
]


@pytest.mark.parametrize(("format", "size", "mode", "options"), VARIANTS)
def test_the_format_and_size_equal_those_of_the_decoder(
    format: str, size: tuple[int, int], mode: str, options: dict[str, object]
) -> None:
    data = image_file(format, size, mode, **options)
    with Image.open(BytesIO(data)) as decoder:
        found = (decoder.format, *decoder.size)

    assert read_image_header(data) == found == (format, *size)


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF", "AVIF", "TIFF"])
def test_the_size_of_an_animation_is_that_of_its_first_frame(format: str) -> None:
    assert read_image_header(animated_file(format)) == (format, 8, 6)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_tiff_is_applied_as_by_decoders(orientation: int) -> None:
    data = image_file("TIFF", (90, 50), tiffinfo={274: orientation})
    with Image.open(BytesIO(data)) as decoder:
        assert read_image_header(data) == ("TIFF", *decoder.size)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "AVIF", "JPEG2000"])
def test_a_file_cut_anywhere_is_truncated_or_not_an_image(format: str) -> None:
    data = image_file(format, (64, 48))

    for end in range(len(data) - 1):
        with pytest.raises(MediaError) as caught:
            read_image_header(data[:end])
        if end > 12:
            assert "truncated" in caught.value.message


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "JPEG2000"])
def test_data_after_the_end_of_an_image_is_ignored(format: str) -> None:
    assert read_image_header(image_file(format) + b"trailer" * 100).format == format


def tiff_header(*fields: tuple[int, int, int, int]) -> bytes:
    """Returns the header of a TIFF file with fields of a tag, type, number of values and value."""
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(fields)) + b"".join(struct.pack("<HHII", *f) for f in fields)


def tiled_tiff_header(size: tuple[int, int], tile: tuple[int, int]) -> bytes:
    sides = zip((256, 257, 322, 323), (*size, *tile), strict=True)
    return tiff_header(*((tag, 4, 1, side) for tag, side in sides))


@pytest.mark.parametrize(("size", "tile"), [((16, 16), (1024, 1024)), ((2001, 1500), (2016, 1504))])
def test_a_tile_of_a_tiff_may_be_a_little_larger_than_the_image(size: tuple[int, int], tile: tuple[int, int]) -> None:
    assert read_image_header(tiled_tiff_header(size, tile)) == ("TIFF", *size)


@pytest.mark.parametrize(("size", "tile"), [((16, 16), (16384, 16384)), ((1, 4000), (1024, 4000))])
def test_a_tiff_whose_tiles_are_much_larger_than_the_image_is_unsupported(
    size: tuple[int, int], tile: tuple[int, int]
) -> None:
    """Decoders allocate entire tiles."""
    with pytest.raises(MediaError, match=f"has tiles of {tile[0]}×{tile[1]} pixels in an image of ") as caught:
        read_image_header(tiled_tiff_header(size, tile))

    assert caught.value.problem == "unsupported"


def test_an_image_without_pixels_is_too_small() -> None:
    header = b"\xff\x4f\xff\x51" + bytes(4) + struct.pack(">IIII", 0, 0, 4, 4) + b"\xff\xd9"

    with pytest.raises(MediaError, match="the image has -4×-4 pixels: each side must have at least 1"):
        RULES["image"].read_header(header, Limits())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"<html>", "unsupported image format: send PNG, JPEG, WebP, GIF, AVIF, BMP, TIFF or JPEG 2000"),
        (image_file("PPM"), "unsupported image format"),
        (b"\0\0\0\x14ftypmif1\0\0\0\0heic" + bytes(100), "unsupported image format"),
        (b"\0\0\0\x14ftypmif1\0\0\0\0avif" + bytes(100), "the AVIF has no image"),
        (image_file("AVIF").replace(b"pitm", b"free"), "the AVIF has no primary image"),
        (image_file("AVIF").replace(b"ispe", b"free"), "the AVIF has no size"),
        (image_file("AVIF").replace(b"ipma", b"free"), "the AVIF has no size"),
        (image_file("AVIF") + b"\0\0\0\x08free" * 1000, "the AVIF has more than 1000 boxes"),
        (image_file("TIFF").replace(b"\x00\x01\x04\x00", b"\xff\xff\x04\x00"), "the TIFF has no size"),
        (b"II*\0\x08\0\0\0\xff\xff" + bytes(100), "the TIFF has more than 1000 fields"),
        (b"II*\0\xff\xff\xff\xff", "truncated: the file ends in its header"),
        (b"II+\0\x08\0\0\0", "truncated: the file ends in its header"),
        (b"II+\0\x08\0\0\0" + b"\xff" * 8, "truncated: the file ends in its header"),
        (b"MM\0+\0\x08\0\0" + (2**63).to_bytes(8), "truncated: the file ends in its header"),
        (b"II+\0\x08\0\0\0\x10" + bytes(7) + b"\xff" * 8, "the TIFF has more than 1000 fields"),
        (tiff_header((256, 4, 1, 16), (257, 9, 1, 16)), "the TIFF has an invalid field 257"),
        (tiff_header((256, 4, 1, 16), (257, 16, 1, 16)), "the TIFF has an invalid field 257"),
        (tiff_header((256, 4, 1, 16), (257, 4, 2, 16)), "the TIFF has an invalid field 257"),
        (tiff_header((256, 4, 1, 9999), (256, 4, 1, 16), (257, 4, 1, 16)), "the TIFF has an invalid field 256"),
        (b"BM", "truncated: the file ends in its header"),
        (image_file("BMP")[:25], "truncated: the file ends in its header"),
        (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100), "the JPEG 2000 has no image"),
        (b"RIFF\x04\0\0\0WAVE" + bytes(20), "the RIFF file is not a WebP"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "the PNG does not begin with its size"),
        (b"\xff\xd8\xff\xe0\x00\x02" + bytes(100), "invalid data in place of a segment"),
        (b"GIF89a" + bytes(100), "invalid data in place of a block"),
    ],
)
def test_an_invalid_image_is_an_error_with_its_reason(data: bytes, message: str) -> None:
    with pytest.raises(MediaError) as caught:
        read_image_header(data)

    assert message in caught.value.message


@pytest.mark.parametrize(
    ("start", "block", "count"),
    [
        (b"\0\0\0\x10ftypavif\0\0\0\0", b"\0\0\0\x08free", 3_000_000),
        (png_of_size(20_000, 20_000)[:33], b"\0\0\0\0tEXt\0\0\0\0", 1_000_000),
        (b"\xff\xd8", b"\xff\xe1\x00\x02", 3_000_000),
        (b"\xff\xd8", b"\xff", 12_000_000),
        (b"GIF89a" + bytes(7), b"\x21\xfe\x00", 4_000_000),
        (b"GIF89a" + bytes(7) + b"\x21\xfe", b"\x01x", 6_000_000),
    ],
)
def test_an_image_with_millions_of_blocks_is_rejected_quickly(start: bytes, block: bytes, count: int) -> None:
    data = start + block * count
    before = time.thread_time()

    with pytest.raises(MediaError):
        read_image_header(data)

    assert time.thread_time() - before < 0.5


class CountedBytes(bytes):
    """Counts accesses to single bytes."""

    accesses = 0

    def __getitem__(self, key: Any) -> Any:
        self.accesses += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("kilobytes", [10, 400, 12_000])
def test_the_number_of_blocks_of_a_gif_is_limited_by_its_size(kilobytes: int) -> None:
    data = CountedBytes(b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01x" * kilobytes * 500)

    with pytest.raises(MediaError, match="blocks in"):
        read_image_header(data)

    assert data.accesses <= max_blocks(len(data)) + 10 < kilobytes * 20 + 1100


def test_a_large_gif_is_within_the_limit_of_blocks() -> None:
    noise = Image.frombytes("L", (1500, 1500), Random(1).randbytes(1500 * 1500))
    buffer = BytesIO()
    noise.save(buffer, "GIF")
    data = CountedBytes(buffer.getvalue())

    assert read_image_header(data) == ("GIF", 1500, 1500)
    assert data.accesses < max_blocks(len(data)) / 3


def test_random_bytes_are_never_an_unexpected_error() -> None:
    random = Random(20261121)
    images = [image_file(format, (32, 32)) for format in FORMATS]

    for _ in range(2000):
        data = bytearray(random.choice(images))
        for _ in range(random.randrange(1, 8)):
            data[random.randrange(len(data))] = random.randrange(256)
        with suppress(MediaError):
            read_image_header(bytes(data))
