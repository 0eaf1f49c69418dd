"""Default probes: example requests by which apps of OpenAI's operations are planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from cornserve.app.app import App
from cornserve.task import Blob
from cornserve.task.base import Task
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.classification import ClassificationRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.embedding import EmbeddingRequest
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.image_editing import ImageEditRequest
from cornserve_tasklib.image_generation import ImageGenerationRequest
from cornserve_tasklib.llm import Mllm
from cornserve_tasklib.media import MODALITIES, Audio, Image, Media, MediaPart, Modality, Video
from cornserve_tasklib.messages import ChatMessage, ContentPart, TextPart
from cornserve_tasklib.scoring import ScoringRequest
from cornserve_tasklib.speaking_chat import SpokenChatRequest
from cornserve_tasklib.text_to_speech import SpeechRequest
from cornserve_tasklib.transcription import TranscriptionRequest

_TEXT = "Hello!"


def default_probes(app: App) -> tuple[Any, ...]:
    """Returns one request for each type that the app is likely to serve; empty for custom request types.

    Chats have media of each combination of the modalities of the `EncoderTask`s and the `Mllm`s of the paths: it is
    unknown which media the model of another task reads.
    """
    if ChatRequest in app.request_types:
        return _chats(app)
    if SpokenChatRequest in app.request_types:
        chats = _chats(app)
        written = [SpokenChatRequest(chat=chat, modalities=["text"]) for chat in chats]
        return (*written, *(SpokenChatRequest(chat=chat) for chat in chats))
    if CompletionRequest in app.request_types:
        return (CompletionRequest(prompt=_TEXT),)
    if EmbeddingRequest in app.request_types:
        return (EmbeddingRequest(input=[_TEXT]),)
    if ScoringRequest in app.request_types:
        return (ScoringRequest(queries=[_TEXT], documents=[_TEXT]),)
    if ClassificationRequest in app.request_types:
        return (ClassificationRequest(input=[_TEXT]),)
    if TranscriptionRequest in app.request_types:
        return (TranscriptionRequest(audio=_sample_audio("file")),)
    if ImageEditRequest in app.request_types:
        image = sample_media("image", "image")
        assert isinstance(image, Image)
        return (ImageEditRequest(prompt=_TEXT, image=image),)
    if ImageGenerationRequest in app.request_types:
        return (ImageGenerationRequest(prompt=_TEXT),)
    if SpeechRequest in app.request_types:
        return (SpeechRequest(input=_TEXT),)
    return ()


def sample_media(modality: Modality, where: str) -> Media:
    """Returns a medium of a usual size, without content."""
    match modality:
        case "image":
            return Image(data=Blob(b""), format="PNG", width=224, height=224, digest="0" * 64, where=where)
        case "audio":
            return _sample_audio(where)
        case "video":
            return Video(
                data=Blob(b""),
                format="MP4",
                width=640,
                height=360,
                frames=150,
                seconds=5,
                digest="0" * 64,
                where=where,
            )


def _sample_audio(where: str) -> Audio:
    return Audio(data=Blob(b""), format="WAV", sample_rate=16_000, channels=1, seconds=5, digest="0" * 64, where=where)


def _modalities(task: Task[Any, Any]) -> tuple[Modality, ...]:
    match task:
        case EncoderTask():
            return task.modalities
        case Mllm():
            return task.encoder_modalities
    return ()


def _chats(app: App) -> tuple[ChatRequest, ...]:
    read = {modality for path in app.paths for task in _all_tasks(path) for modality in _modalities(task)}
    known = [modality for modality in MODALITIES if modality in read]
    media = [chosen for count in range(1, len(known) + 1) for chosen in combinations(known, count)]
    return (ChatRequest.ask(_TEXT), *map(_chat_about, media))


def _chat_about(modalities: Sequence[Modality]) -> ChatRequest:
    content: list[ContentPart] = [TextPart(type="text", text=_TEXT)]
    for number, modality in enumerate(modalities, start=1):
        content.append(MediaPart(type="media", media=sample_media(modality, f"messages[0].content[{number}]")))
    return ChatRequest(messages=[ChatMessage(role="user", content=content)])


def _all_tasks(task: Task[Any, Any]) -> Iterator[Task[Any, Any]]:
    yield task
    for subtask in task.subtasks():
        yield from _all_tasks(subtask)
