"""Finds the media that clients sent in a request, which are replaced with inspected media before the task runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.embedding import EmbeddingRequest
from cornserve_tasklib.media import Media, MediaPart, Modality
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.messages import (
    AudioUrlPart,
    ContentPart,
    ImageUrlPart,
    InputAudioPart,
    SentMediaPart,
    VideoSoundPart,
    VideoUrlPart,
)
from cornserve_tasklib.speaking_chat import SpokenChatRequest

REQUESTS_WITH_MEDIA = (ChatRequest, SpokenChatRequest, EmbeddingRequest)
"""The types of requests that may contain media."""


@dataclass(frozen=True, slots=True)
class MediaSlot:
    """The position of a sent medium in a request, which the inspected medium replaces."""

    parts: list[Any]
    index: int
    path: str
    """The path of the part in the request, such as `messages[0].content[1]`. That of a sound is its video's."""
    param: str
    """The path of the medium in error messages, such as `messages[0].content[1].image_url`."""
    options: MediaOptions
    """The options of the request's media."""

    @classmethod
    def of(cls, parts: list[Any], index: int, path: str, options: MediaOptions | None = None) -> MediaSlot:
        """Returns the slot of the part with this index."""
        sent = parts[index]
        kind = "video_url" if isinstance(sent, VideoSoundPart) else sent.type
        return cls(parts, index, path, f"{path}.{kind}", options or MediaOptions())

    @property
    def sent(self) -> SentMediaPart:
        """The part as sent, before `set_media`."""
        part: SentMediaPart = self.parts[self.index]
        return part

    @property
    def modality(self) -> Modality:
        match self.sent:
            case ImageUrlPart():
                return "image"
            case AudioUrlPart() | InputAudioPart() | VideoSoundPart():
                return "audio"
            case VideoUrlPart():
                return "video"

    @property
    def text(self) -> str:
        """The URL or the base64 in the request."""
        match self.sent:
            case ImageUrlPart(image_url=url) | AudioUrlPart(audio_url=url) | VideoUrlPart(video_url=url):
                return url.url
            case InputAudioPart(input_audio=audio):
                return audio.data
            case VideoSoundPart():
                return ""

    @property
    def is_sound(self) -> bool:
        """Whether the medium is the sound of the video in the slot before."""
        return isinstance(self.sent, VideoSoundPart)

    @property
    def video(self) -> Media:
        """The video whose sound this is, after its `set_media`."""
        part: MediaPart = self.parts[self.index - 1]
        return part.media

    @property
    def url(self) -> str:
        """The URL. Base64 of `input_audio` becomes a `data:` URL, unless it is one."""
        if isinstance(self.sent, InputAudioPart) and self.text[:5].lower() != "data:":
            return f"data:;base64,{self.text}"
        return self.text

    @property
    def media(self) -> Media:
        """The medium, after `set_media`."""
        part: MediaPart = self.parts[self.index]
        return part.media

    def replace_url(self, url: str) -> None:
        match self.sent:
            case ImageUrlPart(image_url=image_url):
                image_url.url = url
            case AudioUrlPart(audio_url=audio_url):
                audio_url.url = url
            case InputAudioPart(input_audio=audio):
                audio.data = url
            case VideoUrlPart(video_url=video_url):
                video_url.url = url

    def set_media(self, media: Media) -> None:
        """Replaces the part, so that long base64 does not stay in memory."""
        self.parts[self.index] = MediaPart(type="media", media=media.with_options(self.options))


def find_media_slots(request: object) -> list[MediaSlot]:
    """Returns the slots in the order of the request."""
    match request:
        case SpokenChatRequest(chat=chat):
            return list(_find_in_messages(chat, "chat."))
        case ChatRequest() | EmbeddingRequest():
            return list(_find_in_messages(request))
    return []


def _find_in_messages(request: ChatRequest | EmbeddingRequest, prefix: str = "") -> Iterator[MediaSlot]:
    contents = [
        (number, message.content)
        for number, message in enumerate(request.messages or ())
        if isinstance(message.content, list)
    ]
    if not contents:
        return
    options = request.media_options if isinstance(request, ChatRequest) else MediaOptions()
    for number, content in contents:
        yield from _find_slots(content, f"{prefix}messages[{number}]", options)


def _find_slots(content: list[ContentPart], message: str, options: MediaOptions) -> Iterator[MediaSlot]:
    position = -1
    for index, part in enumerate(content):
        position += not isinstance(part, VideoSoundPart)  # Clients do not send these.
        if isinstance(part, ImageUrlPart | AudioUrlPart | InputAudioPart | VideoUrlPart | VideoSoundPart):
            yield MediaSlot.of(content, index, f"{message}.content[{position}]", options)
