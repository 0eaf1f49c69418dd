"""Decodes AVIF images in a process with limited memory.

libavif decodes frames of any size, whatever the container declares, and the gateway reads only the container.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import PIL.Image

from cornserve_executors.media.cancellation import raise_if_cancelled
from cornserve_executors.media.errors import UnusableMediaError
from cornserve_tasklib.media import Image

PROGRAM = Path(__file__).with_name("avif_process.py")

MAX_SECONDS = 120.0
"""The time that a process may take on a busy machine."""

CHECK_SECONDS = 1.0
"""The interval at which the caller may cancel."""


def decode_avif(image: Image, file: PIL.Image.Image) -> PIL.Image.Image:
    """Returns the pixels of the first frame, and the information of the file. Blocks.

    Args:
        file: the opened file, whose pixels are not loaded.

    Raises `UnusableMediaError`, and `CancelledError` in a `DecodePool` whose caller is cancelled.
    """
    width, height = file.size
    pixels = _run([str(width * height)], image)
    try:
        decoded = PIL.Image.frombytes(file.mode, file.size, pixels)
    except ValueError:
        raise _undecodable(image, "its frame has another size") from None
    decoded.info.update(file.info)
    return decoded


def _run(arguments: list[str], image: Image) -> bytes:
    with subprocess.Popen(
        [sys.executable, "-I", str(PROGRAM), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            output, errors = _communicate(process, image)
        finally:
            process.kill()
    if process.returncode > 0:
        lines = errors.decode(errors="replace").splitlines()
        raise _undecodable(image, lines[-1] if lines else "its parts are inconsistent")
    if process.returncode < 0:
        raise _undecodable(image, "it needs more memory or time than an image of its size")
    return output


def _communicate(process: subprocess.Popen[bytes], image: Image) -> tuple[bytes, bytes]:
    """Returns what the process writes to its standard output and error."""
    assert image.data is not None
    deadline = time.monotonic() + MAX_SECONDS
    while True:
        try:
            return process.communicate(image.data.data, timeout=CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            raise_if_cancelled()
            if time.monotonic() > deadline:
                raise _undecodable(image, f"this takes more than {MAX_SECONDS:.0f} s") from None


def _undecodable(image: Image, reason: str) -> UnusableMediaError:
    return UnusableMediaError(image.where, f"the AVIF image cannot be decoded: {reason[:300]}")
