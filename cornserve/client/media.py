"""Media in chat messages."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

_IMAGE_MAGIC = {b"\x89PNG": "png", b"\xff\xd8": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_AUDIO_MAGIC = {
    b"RIFF": "wav",
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1a\x45\xdf\xa3": "webm",
    b"ID3": "mp3",
    b"\xff": "mp3",
}

_QUICKTIME_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")


def image_part(image: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message, in the format of OpenAI's API.

    `{"role": "user", "content": [image_part(Path("cat.png")), {"type": "text", …}]}` is a message with an image.

    Args:
        image: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
        ValueError: the image is not a PNG, JPEG, WebP or GIF.
    """
    if isinstance(image, str):
        return {"type": "image_url", "image_url": {"url": image}}
    content = _content(image)
    kind = _kind(content, _IMAGE_MAGIC)
    if kind is None:
        raise ValueError("unsupported image format: give a PNG, JPEG, WebP or GIF")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{b64encode(content).decode()}"}}


def audio_part(audio: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message: `input_audio` of OpenAI's API, or `audio_url` of vLLM's for a URL.

    Args:
        audio: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
        ValueError: the audio is not a WAV, MP3, FLAC, Ogg, M4A or WebM.
    """
    if isinstance(audio, str):
        return {"type": "audio_url", "audio_url": {"url": audio}}
    content = _content(audio)
    kind = "m4a" if content[4:8] == b"ftyp" else _kind(content, _AUDIO_MAGIC)
    if kind is None:
        raise ValueError("unsupported audio format: give a WAV, MP3, FLAC, Ogg, M4A or WebM")
    return {"type": "input_audio", "input_audio": {"data": b64encode(content).decode(), "format": kind}}


def video_part(video: Path | bytes | str) -> dict[str, Any]:
    """Returns a part of a user's message: `video_url` of vLLM's API.

    Args:
        video: the path of a file, the content of a file, or a URL that the gateway fetches.
    Raises:
        OSError: the file cannot be read.
        ValueError: the video is not an MP4, MOV, WebM, MKV or GIF.
    """
    if isinstance(video, str):
        return {"type": "video_url", "video_url": {"url": video}}
    content = _content(video)
    kind = _video_type(content)
    if kind is None:
        raise ValueError("unsupported video format: give an MP4, MOV, WebM, MKV or GIF")
    return {"type": "video_url", "video_url": {"url": f"data:{kind};base64,{b64encode(content).decode()}"}}


def _video_type(content: bytes) -> str | None:
    if content.startswith(b"GIF8"):
        return "image/gif"
    if content.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm" if b"webm" in content[:64] else "video/matroska"
    if content[4:8] == b"ftyp" and content[8:12] != b"qt  ":
        return "video/mp4"
    return "video/quicktime" if content[4:8] in _QUICKTIME_BOXES else None


def _content(file: Path | bytes) -> bytes:
    return file if isinstance(file, bytes) else file.read_bytes()


def _kind(content: bytes, magic: dict[bytes, str]) -> str | None:
    return next((kind for start, kind in magic.items() if content.startswith(start)), None)
