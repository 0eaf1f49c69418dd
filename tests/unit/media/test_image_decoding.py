"""Image files are decoded to the pixels that vLLM produces. Errors name the image."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import zlib
from concurrent.futures import CancelledError
from contextlib import nullcontext

import numpy as np
import PIL.Image
import pytest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.media.avif_decoding import PROGRAM
from cornserve_executors.media.cancellation import run_cancellable
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_executors.media.image_decoding import decode_image, image_size
from cornserve_tasklib.media import Image
from tests.images import as_image, encode_file, image_from_file, noise

PICTURE = noise(0, 30, 20)


def upright(orientation: int) -> Image:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return as_image(PICTURE, exif=exif)


def test_decoding_returns_the_original_pixels() -> None:
    assert decode_image(as_image(PICTURE)).tobytes() == PICTURE.tobytes()


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "I;16"])
def test_every_colour_mode_is_converted_to_rgb(mode: str) -> None:
    grey = PICTURE.convert("L").convert("I").convert("I;16") if mode == "I;16" else PICTURE.convert(mode)
    assert decode_image(as_image(grey)).mode == "RGB"


def test_transparent_pixels_become_white() -> None:
    clear = PIL.Image.new("RGBA", (2, 2), (200, 0, 0, 0))
    assert decode_image(as_image(clear)).getpixel((0, 0)) == (255, 255, 255)


def test_a_transparent_palette_colour_becomes_white() -> None:
    palette = PIL.Image.new("RGB", (2, 2), (200, 0, 0)).convert("P")
    assert decode_image(as_image(palette, transparency=palette.getpixel((0, 0)))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("orientation", "expected"),
    [
        (1, PICTURE),
        (3, PICTURE.transpose(PIL.Image.Transpose.ROTATE_180)),
        (6, PICTURE.transpose(PIL.Image.Transpose.ROTATE_270)),
        (8, PICTURE.transpose(PIL.Image.Transpose.ROTATE_90)),
    ],
)
def test_the_exif_orientation_is_applied(orientation: int, expected: PIL.Image.Image) -> None:
    decoded = decode_image(upright(orientation))

    assert decoded.tobytes() == expected.tobytes()
    assert image_size(upright(orientation)) == decoded.size


def move_exif_behind_pixels(data: bytes) -> bytes:
    """Moves the EXIF chunk of a PNG file after its pixels, which the format allows."""
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4])
    return data[:start] + data[end:-12] + data[start:end] + data[-12:]


def test_an_orientation_behind_the_pixels_is_applied() -> None:
    image = upright(6)
    assert image.data is not None
    image = image_from_file(move_exif_behind_pixels(image.data.data), "PNG", 30, 20)

    assert image_size(image) == decode_image(image).size == (20, 30)


def test_the_size_is_read_without_decoding() -> None:
    image = image_from_file(wrong_checksum(PNG), "PNG", 30, 20)
    assert image_size(image) == (30, 20)
    with pytest.raises(UnusableMediaError):
        decode_image(image)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_broken_exif_data_is_ignored() -> None:
    image = as_image(PICTURE, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")

    assert image_size(image) == decode_image(image).size == PICTURE.size


def test_an_mpo_file_decodes_to_its_first_picture() -> None:
    image = image_from_file(
        encode_file(PICTURE, "MPO", save_all=True, append_images=[noise(1, 30, 20)]), "JPEG", 30, 20
    )

    assert decode_image(image).size == (30, 20)


def truncated(data: bytes) -> bytes:
    return data[:-200]


def wrong_checksum(data: bytes) -> bytes:
    at = data.index(b"IDAT") + 10
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


PNG, JPEG = encode_file(PICTURE), encode_file(PICTURE, "JPEG")


def with_rows(rows: int) -> bytes:
    """Returns a PNG file with fewer rows than its header declares. All chunks and rows are valid."""
    packed = zlib.compress((b"\0" + bytes(range(90))) * rows)
    chunk = b"IDAT" + packed
    return PNG[:33] + len(packed).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) + PNG[-12:]


def with_chunk_behind_pixels(kind: bytes, content: bytes) -> bytes:
    """Returns a PNG file with an additional chunk after the pixels."""
    chunk = len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4)
    return PNG[:-12] + chunk + PNG[-12:]


def test_animation_chunks_behind_the_pixels_are_ignored() -> None:
    image = image_from_file(with_chunk_behind_pixels(b"acTL", (2).to_bytes(4) + bytes(4)), "PNG", 30, 20)
    assert image_size(image) == decode_image(image).size == (30, 20)


HEADER = b"IHDR" + (60_000).to_bytes(4) + (60_000).to_bytes(4) + bytes([8, 0, 0, 0, 0])
BOMB = PNG[:12] + HEADER + zlib.crc32(HEADER).to_bytes(4) + PNG[33:]
AVIF = encode_file(PICTURE, "AVIF")
AVIF_WITHOUT_FRAME = AVIF.partition(b"mdat")[0] + b"mdat" + bytes(len(AVIF.partition(b"mdat")[2]))


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (image_from_file(truncated(PNG), "PNG", 30, 20), "the PNG image cannot be decoded: "),
        (image_from_file(truncated(JPEG), "JPEG", 30, 20), "the JPEG image cannot be decoded: image file is truncated"),
        (image_from_file(wrong_checksum(PNG), "PNG", 30, 20), "the PNG image cannot be decoded: "),
        (
            image_from_file(with_rows(10), "PNG", 30, 20),
            "the PNG image cannot be decoded: it is truncated, rows are missing",
        ),
        (image_from_file(PNG[:20], "PNG", 30, 20), "the PNG image cannot be decoded: |not a valid PNG image"),
        (image_from_file(JPEG, "PNG", 30, 20), "not a valid PNG image"),
        (image_from_file(b"<html>", "JPEG", 30, 20), "not a valid JPEG image"),
        (image_from_file(b"", "JPEG", 30, 20), "not a valid JPEG image"),
        (image_from_file(PNG, "POSTSCRIPT", 30, 20), "the POSTSCRIPT image cannot be decoded: "),
        (image_from_file(PNG, "PNG", 31, 20), "the image has 30×20 pixels, but 31×20 were declared"),
        (image_from_file(truncated(encode_file(PICTURE, "BMP")), "BMP", 30, 20), "the BMP image cannot be decoded: "),
        (image_from_file(truncated(encode_file(PICTURE, "TIFF")), "TIFF", 30, 20), "the TIFF image cannot be decoded"),
        (image_from_file(AVIF_WITHOUT_FRAME, "AVIF", 30, 20), "the AVIF image cannot be decoded: "),
        (image_from_file(AVIF, "AVIF", 30, 21), "the image has 30×20 pixels, but 30×21 were declared"),
        (image_from_file(BOMB, "PNG", 60_000, 60_000), "the PNG image cannot be decoded: .*decompression bomb"),
        (as_image(PICTURE).without_data, "the image has no data"),
    ],
)
def test_an_unusable_image_is_rejected_with_its_position(image: Image, reason: str) -> None:
    with pytest.raises(UnusableMediaError) as caught:
        decode_image(image)

    assert isinstance(caught.value, InvalidRequestError)
    assert re.match(reason, caught.value.reason), caught.value.reason
    assert str(caught.value) == f"messages[0].content[0]: {caught.value.reason}"


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("rows", [19, 20])
def test_missing_rows_are_detected_in_every_colour_mode(mode: str, rows: int) -> None:
    black = PIL.Image.new(mode, (30, 20))
    data = encode_file(black)
    start = data.index(b"IDAT")
    length = int.from_bytes(data[start - 4 : start])
    raw = zlib.decompress(data[start + 4 : start + 4 + length])
    packed = zlib.compress(raw[: len(raw) * rows // 20])
    chunk = b"IDAT" + packed
    cut = data[: start - 4] + len(packed).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) + data[-12:]

    with pytest.raises(UnusableMediaError, match="rows are missing") if rows < 20 else nullcontext():
        decode_image(image_from_file(cut, "PNG", 30, 20))


def interlaced(picture: PIL.Image.Image, passes: int) -> bytes:
    """Returns an interlaced PNG file with the first `passes` passes. Pillow can read such files but not write them."""
    pixels = np.asarray(picture)
    steps = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[top::down, left::across] for top, left, down, across in steps[:passes]]
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for part in parts for row in part))
    header = b"IHDR" + picture.width.to_bytes(4) + picture.height.to_bytes(4) + bytes([8, 2, 0, 0, 1])
    chunks = [header, b"IDAT" + packed, b"IEND"]
    return PNG[:8] + b"".join((len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) for chunk in chunks)


def test_a_missing_pass_of_an_interlaced_image_is_detected() -> None:
    assert decode_image(image_from_file(interlaced(PICTURE, 7), "PNG", 30, 20)).tobytes() == PICTURE.tobytes()
    with pytest.raises(UnusableMediaError, match="rows are missing"):
        decode_image(image_from_file(interlaced(PICTURE, 6), "PNG", 30, 20))


def test_a_compressed_text_chunk_is_not_a_decompression_bomb() -> None:
    packed = zlib.compress(bytes(8 << 20))
    chunk = b"zTXt" + b"comment\0\0" + packed
    text = len(chunk[4:]).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    data = PNG[:33] + text + PNG[33:]

    with pytest.raises(UnusableMediaError):
        decode_image(image_from_file(data, "PNG", 30, 20))


@pytest.mark.slow
def test_frames_of_avif_that_are_larger_than_the_image_do_not_get_memory() -> None:
    """libavif decodes them, because only the container has the size of the image."""
    large = encode_file(PIL.Image.new("RGB", (8192, 8192)), "AVIF", speed=10)

    decoded = subprocess.run([sys.executable, "-I", PROGRAM, "256"], input=large, capture_output=True, check=False)

    assert (decoded.returncode, decoded.stdout) == (1, b"")
    assert b"emory" in decoded.stderr


def test_the_decoding_of_an_avif_ends_when_its_caller_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve_executors.media.avif_decoding.CHECK_SECONDS", 0.001)
    cancelled = threading.Event()
    cancelled.set()

    with pytest.raises(CancelledError):
        run_cancellable(lambda: decode_image(image_from_file(AVIF, "AVIF", 30, 20)), cancelled)
