"""Images, made as users make them."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from io import BytesIO
from typing import Any

from PIL import Image


def picture(format: str = "PNG", size: tuple[int, int] = (8, 6), mode: str = "RGB", **options: Any) -> bytes:
    buffer = BytesIO()
    image = Image.linear_gradient("L").resize(size).convert(mode)
    image.save(buffer, format, **options)
    return buffer.getvalue()


def animated(format: str) -> bytes:
    others = [Image.new("RGB", (8, 6), colour) for colour in ("red", "green", "blue")]
    return picture(format, save_all=True, append_images=others)


def claims(width: int, height: int) -> bytes:
    """A PNG of few bytes that says it has this size: what it has of pixels would unfold to no more than zeros."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000), 9)
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
