"""Image files for tests."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from io import BytesIO
from typing import Any

from PIL import Image


def image_file(format: str = "PNG", size: tuple[int, int] = (8, 6), mode: str = "RGB", **options: Any) -> bytes:
    buffer = BytesIO()
    image = Image.linear_gradient("L").resize(size).convert(mode)
    image.save(buffer, format, **options)
    return buffer.getvalue()


def animated_file(format: str) -> bytes:
    frames = [Image.new("RGB", (8, 6), color) for color in ("red", "green", "blue")]
    return image_file(format, save_all=True, append_images=frames)


def png_of_size(width: int, height: int) -> bytes:
    """Returns a small PNG file whose header specifies this size. Its pixel data consists of zeros."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000), 9)
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
