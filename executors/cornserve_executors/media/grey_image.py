"""A grey image, with which executors warm up."""

from __future__ import annotations

from typing import Final

from cornserve.task import Blob
from cornserve_tasklib.media import Image

GREY_IMAGE: Final = Image(
    data=Blob(b"P5 64 64 255\n" + bytes([128]) * 64 * 64),
    format="PPM",
    width=64,
    height=64,
    digest="grey",
    where="warm-up",
)
