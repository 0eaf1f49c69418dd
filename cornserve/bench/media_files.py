"""Media files with random contents, which no cache contains."""

from __future__ import annotations

import io
import struct
import wave
from base64 import b64encode
from collections.abc import Iterator
from functools import lru_cache
from random import Random

from cornserve.png import png_file

SAMPLE_RATE = 16_000
"""Samples per second of generated audio, as most audio encoders use."""

_CLEAR, _END = 4, 5
"""The special codes of GIF's compression for images of up to four colors."""

_MAX_CODE_BITS = 12


def image_url(width: int, height: int, random: Random) -> str:
    """Returns a `data:` URL of the PNG image of `image_file`."""
    return f"data:image/png;base64,{b64encode(image_file(width, height, random)).decode()}"


def image_file(width: int, height: int, random: Random) -> bytes:
    """Returns a PNG image whose rows have random colors."""
    return png_file(width, height, (random.randbytes(3) for _ in range(height)))


def audio_url(seconds: float, random: Random) -> str:
    """Returns a `data:` URL of a WAV file of 16 bits per sample, in one channel, with random samples."""
    with io.BytesIO() as file:
        with wave.open(file, "wb") as audio:
            audio.setnchannels(1)
            audio.setsampwidth(2)
            audio.setframerate(SAMPLE_RATE)
            audio.writeframes(random.randbytes(2 * max(1, round(seconds * SAMPLE_RATE))))
        return f"data:audio/wav;base64,{b64encode(file.getvalue()).decode()}"


def video_url(width: int, height: int, frames: int, seconds: float, random: Random) -> str:
    """Returns a `data:` URL of an animated GIF, without sound. Each frame has one random color.

    GIF has durations of 1/100 s, of which each frame has at least two.
    """
    pixels = _pixels_of_one_color(width * height)
    gif = [b"GIF89a", struct.pack("<HHBBB", width, height, 0, 0, 0)]
    start = 0
    for number in range(1, frames + 1):
        end = max(start + 2, round(100 * seconds * number / frames))
        gif.append(struct.pack("<BBBBHBB", 0x21, 0xF9, 4, 0, end - start, 0, 0))
        gif.append(struct.pack("<BHHHHB", 0x2C, 0, 0, width, height, 0x80) + random.randbytes(6) + pixels)
        start = end
    return f"data:image/gif;base64,{b64encode(b''.join(gif) + b';').decode()}"


@lru_cache(maxsize=64)
def _pixels_of_one_color(count: int) -> bytes:
    """Returns the data of a GIF image whose pixels all have the color 0."""
    bits = position = 0
    for code, width in _codes(count):
        bits |= code << position
        position += width
    data = bits.to_bytes((position + 7) // 8, "little")
    blocks = (data[start : start + 255] for start in range(0, len(data), 255))
    return b"\x02" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def _codes(pixels: int) -> Iterator[tuple[int, int]]:
    """Yields the codes of pixels of the color 0, with their widths in bits.

    Each code defines the next one, whose run of pixels is longer by one.
    """
    yield _CLEAR, 3
    length = 1
    while pixels:
        run = min(length, pixels)
        yield (0 if run == 1 else _CLEAR + run), _code_bits(length)
        pixels -= run
        length += 1
        if _CLEAR + length == 1 << _MAX_CODE_BITS:
            yield _CLEAR, _MAX_CODE_BITS
            length = 1
    yield _END, _code_bits(length)


def _code_bits(length: int) -> int:
    return (_CLEAR + length).bit_length()
