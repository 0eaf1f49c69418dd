"""Chats with audio, images and videos, for Cornserve's renderer and for vLLM's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from cornserve.task import Tensor
from cornserve_tasklib import ChatMessage, ChatRequest
from cornserve_tasklib.media import Audio, Media, MediaPart
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.messages import TextPart
from tests.audio import as_audio, sound
from tests.images import as_image, noise
from tests.video import as_video, with_sound

MediaContent = Sequence[str | Media]

TOKENS = 24

AUDIO_CONTENTS: dict[str, MediaContent] = {
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

MIXED_CONTENTS: dict[str, MediaContent] = {
    "text only": ["Tell me something."],
    "audio": ["Listen: ", as_audio(sound(1, 2.37)), "What is it?"],
    "longer audio than Whisper's thirty seconds": [as_audio(sound(9, 33.3)), "?"],
    "image": [as_image(noise(1, 112, 84)), "What is it?"],
    "audio, then image": [as_audio(sound(2, 1.6)), "Compare with ", as_image(noise(2, 84, 112))],
    "image, then audio, twice": [
        *(as_image(noise(3, 200, 60)), as_audio(sound(3, 1)), " or "),
        *(as_image(noise(4, 60, 90)), as_audio(sound(3, 1)), "?"),
    ],
    "video": ["What happens? ", as_video(9, 96, 64, fps=3)],
    "video, then audio": [as_video(8, 120, 60, fps=2), as_audio(sound(4, 1.2)), "?"],
    "audio, image, then video": [
        *("a", as_audio(sound(2, 2)), as_image(noise(2, 60, 90))),
        *(as_video(6, 80, 120, fps=4), "What is it?"),
    ],
}

VIDEO_CONTENTS: dict[str, MediaContent] = {
    "video": [as_video(9, 96, 64, fps=3), "What happens?"],
    "videos of different rates and sizes": ["Compare ", as_video(8, 120, 60, fps=2), as_video(20, 64, 64, fps=10), "."],
    "images and a video": [as_image(noise(4, 60, 90)), as_video(6, 80, 120, fps=4), as_image(noise(6, 84, 84)), "?"],
    "the same video twice": [as_video(7, 72, 72, fps=5), "and", as_video(7, 72, 72, fps=5)],
}


def _film(seconds: float, *args: int) -> list[Media]:
    """Returns a video with noise."""
    return with_sound(as_video(*args, sound="aac", samples=sound(11, seconds, 48_000).T))


SOUND_CONTENTS: dict[str, MediaContent] = {
    "longer video": [as_image(noise(7, 60, 90)), *_film(1.3, 9, 96, 64, 2), "What happens?"],
    "longer sound": ["Listen: ", *_film(5.1, 5, 64, 64, 2), "?"],
    "two videos": [*_film(1.7, 20, 120, 60, 10), "and", *_film(4.2, 9, 64, 80, 2)],
}
"""Videos, each with its sound."""


def with_options(content: MediaContent, **options: Any) -> MediaContent:
    """Returns the content with options of its media."""
    given = MediaOptions(**options)
    return [part if isinstance(part, str) else part.with_options(given) for part in content]


OPTION_CONTENTS: dict[str, MediaContent] = {
    "more frames": with_options([as_video(20, 64, 64, fps=10), "What happens?"], fps=5),
    "fewer frames": with_options([as_video(20, 64, 64, fps=2), "What happens?"], fps=0.5, max_frames=4),
    "at least six frames": with_options([as_video(20, 64, 64, fps=10), "What happens?"], min_frames=6),
    "fewer pixels": with_options([as_image(noise(3, 112, 140)), as_video(6, 120, 160, fps=4), "?"], max_pixels=9000),
    "more pixels": with_options([as_image(noise(4, 60, 90)), as_video(6, 64, 64, fps=4)], min_pixels=20000),
}
"""Media with options, for Qwen's models."""

TILE_CONTENTS: dict[str, MediaContent] = {
    "fewer tiles": with_options([as_image(noise(3, 300, 140)), "What is it?"], max_patches=1),
    "more tiles": with_options(["Compare ", as_image(noise(4, 64, 64)), as_image(noise(5, 60, 90))], min_patches=3),
    "two or three tiles": with_options([as_image(noise(6, 900, 120)), "?"], min_patches=2, max_patches=3),
}
"""Images with options, for InternVL."""

FRAME_CONTENTS: dict[str, MediaContent] = {
    "six frames": with_options([as_video(20, 64, 64, fps=10), "What happens?"], num_frames=6),
    "fewer frames per second": with_options([as_video(20, 96, 64, fps=2), as_image(noise(4, 60, 90)), "?"], fps=0.5),
}
"""Videos with options, for models whose frames are evenly distributed."""


def media_chat(content: MediaContent, kind: str = "", **fields: Any) -> ChatRequest:
    """Returns a chat request. `kind` has an "r" (raw) or an "e" (encoded) for each medium; by default, all are raw."""
    kinds = iter(kind or "r" * len(media_in(content)))
    parts = [
        TextPart(type="text", text=part) if isinstance(part, str) else _part(part, next(kinds)) for part in content
    ]
    options = {"max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True} | fields
    return ChatRequest(messages=[ChatMessage(role="user", content=[*parts])], **options)


def media_in(content: MediaContent) -> list[Media]:
    return [part for part in content if not isinstance(part, str)]


def vllm_messages(content: MediaContent) -> list[dict[str, Any]]:
    """Returns the messages of a request to vLLM's server, which decodes the files itself."""
    return [{"role": "user", "content": [_vllm_part(part) for part in content if not is_sound(part)]}]


def is_sound(part: str | Media) -> bool:
    """Returns whether the part is the sound of the video before it, which vLLM reads from the video's file."""
    return isinstance(part, Audio) and part.of_video


def _vllm_part(part: str | Media) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    assert part.data is not None
    kind = f"{part.modality}_url"
    return {"type": kind, kind: {"url": f"data:{part.modality}/any;base64,{b64encode(part.data.data).decode()}"}}


def _part(media: Media, kind: str) -> MediaPart:
    if kind == "r":
        return MediaPart(type="media", media=media)
    return MediaPart(type="media", media=media.without_data, embedding=Tensor())
