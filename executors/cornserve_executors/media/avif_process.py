"""Decodes an AVIF image of the standard input to raw pixels at the standard output, in limited memory and time.

`python avif_process.py PIXELS`. It imports no other module of Cornserve, so that it starts quickly.
"""

from __future__ import annotations

import resource
import sys
from io import BytesIO

BASE_BYTES = 256 << 20
"""The memory of Python and of the decoder without an image."""

BYTES_PER_PIXEL = 48
"""The memory for each pixel: planes of 16 bits, a copy of them, and two copies of the colors."""

MAX_SECONDS = 60


def main() -> int:
    memory = BASE_BYTES + int(sys.argv[1]) * BYTES_PER_PIXEL
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import PIL.AvifImagePlugin
    import PIL.Image

    PIL.AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # Each thread reserves memory.
    try:
        with PIL.Image.open(BytesIO(sys.stdin.buffer.read()), formats=["AVIF"]) as image:
            sys.stdout.buffer.write(image.tobytes())
    except Exception as error:  # Pillow's decoders raise many types.
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
