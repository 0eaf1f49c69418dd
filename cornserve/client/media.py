"""Media in chat messages.

The gateway determines the format of a file by its content, so the declared types name only the modality.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from cornserve.client.arguments import MAX_FILE_MIB
from cornserve_plan.bounded_file import read_bounded_bytes


def image_part(image: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message, in the format of OpenAI's API.

    `{"role": "user", "content": [image_part(Path("cat.png")), {"type": "text", …}]}` is a message with an image.

    Args:
        image: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
    """
    return {"type": "image_url", "image_url": {"url": _url(image, "image")}}


def audio_part(audio: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message: `audio_url` of vLLM's API.

    Args:
        audio: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
    """
    return {"type": "audio_url", "audio_url": {"url": _url(audio, "audio")}}


def video_part(video: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message: `video_url` of vLLM's API.

    Args:
        video: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
    """
    return {"type": "video_url", "video_url": {"url": _url(video, "video")}}


def _url(medium: Path | bytes | str, modality: str) -> str:
    if isinstance(medium, str):
        return medium
    content = medium if isinstance(medium, bytes) else read_bounded_bytes(medium, MAX_FILE_MIB)
    return f"data:{modality}/*;base64,{b64encode(content).decode()}"
