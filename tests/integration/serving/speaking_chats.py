"""Chats with media, and the media as transformers reads them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

from tests.audio import audio_file, sound
from tests.integration.cli.cli_instance import SMALL_KV_CACHE
from tests.integration.serving.image_chats import image_of, noise_part, text_part


@dataclass(frozen=True)
class MediaChat:
    """A chat, and its media as transformers reads them."""

    messages: list[dict[str, Any]]
    images: list[Image.Image] = field(default_factory=list)
    audio: list[NDArray[np.float32]] = field(default_factory=list)

    @property
    def for_transformers(self) -> list[dict[str, Any]]:
        return [message | {"content": _for_transformers(message["content"])} for message in self.messages]


def _for_transformers(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [part if part["type"] == "text" else {"type": part["type"].partition("_")[0]} for part in content]


def audio_part(seed: int) -> dict[str, Any]:
    return {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{b64encode(_wave(seed)).decode()}"}}


def _wave(seed: int) -> bytes:
    return audio_file(sound(seed))


def pixels(seed: int, *size: int) -> Image.Image:
    return image_of(noise_part(seed, *size))


def samples(seed: int) -> NDArray[np.float32]:
    decoded, _ = soundfile.read(BytesIO(_wave(seed)), dtype="float32")
    return decoded


MEDIA_CHATS = {
    "image": MediaChat([{"role": "user", "content": [text_part("this?"), noise_part(1)]}], [pixels(1)]),
    "audio": MediaChat([{"role": "user", "content": [audio_part(1), text_part("said?")]}], [], [samples(1)]),
    "images and audio in several turns": MediaChat(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [audio_part(1), text_part("a"), noise_part(1, 32, 64)]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": [noise_part(2, 96, 64), text_part("b")]},
        ],
        [pixels(1, 32, 64), pixels(2, 96, 64)],
        [samples(1)],
    ),
}


def speech_options(path: str, max_tokens: int) -> list[str]:
    """Returns the options of `cornserve deploy` for an app of a tiny model that speaks."""
    return ["--share", f"{path}=1", "--option", f"talker.max_tokens={max_tokens}", *SMALL_KV_CACHE]
