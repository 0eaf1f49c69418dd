"""Chats with audio, for Cornserve's renderer and for vLLM's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from cornserve.task import Tensor
from cornserve_tasklib import Audio, ChatMessage, ChatRequest
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.messages import TextPart
from tests.audio import as_audio, sound

AudioContent = Sequence[str | Audio]

TOKENS = 24

AUDIO_CONTENTS: dict[str, AudioContent] = {
    "one": [as_audio(sound(1, 1.3)), "What is it?"],
    "8-bit 8 kHz": ["Listen: ", as_audio(sound(2, 1, 8_000), 8_000, subtype="PCM_U8")],
    "5.1 channels": [as_audio(sound(3, 0.7, 48_000, 6), 48_000, subtype="FLOAT")],
    "several formats": [
        "Compare ",
        as_audio(sound(4, 0.9, 44_100, 2), 44_100, "MP3"),
        " with ",
        as_audio(sound(5, 2, 22_050), 22_050, "FLAC"),
        " and ",
        as_audio(sound(6, 0.5, 48_000), 48_000, "OGG"),
        as_audio(sound(7, 1.1, 44_100, 2), 44_100, "OGG", subtype="VORBIS"),
    ],
    "the same twice": [as_audio(sound(8)), as_audio(sound(8)), "?"],
    "longer than the model hears": [as_audio(sound(9, 31, 8_000), 8_000), "?"],
}


def audio_chat(content: AudioContent, kind: str = "", **fields: Any) -> ChatRequest:
    """Returns a chat request. `kind` has an "r" (raw) or an "e" (encoded) for each audio; by default, all are raw."""
    kinds = iter(kind or "r" * len(audios_in(content)))
    parts = [
        TextPart(type="text", text=part) if isinstance(part, str) else _part(part, next(kinds)) for part in content
    ]
    options = {"max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True} | fields
    return ChatRequest(messages=[ChatMessage(role="user", content=[*parts])], **options)


def audios_in(content: AudioContent) -> list[Audio]:
    return [part for part in content if isinstance(part, Audio)]


def vllm_messages(content: AudioContent) -> list[dict[str, Any]]:
    """Returns the messages of a request to vLLM's server, which decodes the files itself."""
    parts = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "audio_url", "audio_url": {"url": f"data:audio/any;base64,{_base64(part)}"}}
        for part in content
    ]
    return [{"role": "user", "content": parts}]


def _base64(audio: Audio) -> str:
    assert audio.data is not None
    return b64encode(audio.data.data).decode()


def _part(audio: Audio, kind: str) -> MediaPart:
    if kind == "r":
        return MediaPart(type="media", media=audio)
    return MediaPart(type="media", media=audio.without_data, embedding=Tensor())
