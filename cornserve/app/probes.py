"""Default probes: example requests by which apps of OpenAI's operations are planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cornserve.app.app import App
from cornserve.task import Blob
from cornserve.task.base import Task
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.embedding import EmbeddingRequest
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.image import Image, ImagePart
from cornserve_tasklib.llm import Mllm
from cornserve_tasklib.messages import ChatMessage, ContentPart, TextPart

_TEXT = "Hello!"

_IMAGE = Image(data=Blob(b""), format="PNG", width=224, height=224, digest="0" * 64, where="messages[0].content[1]")


def default_probes(app: App) -> tuple[Any, ...]:
    """Returns one request for each type that the app is likely to serve; empty for custom request types.

    Chats have images only if a path contains an `EncoderTask` or an `Mllm`: it is unknown whether the model of another
    task reads images.
    """
    if ChatRequest in app.request_types:
        text = ChatRequest.ask(_TEXT)
        has_images = any(isinstance(task, EncoderTask | Mllm) for path in app.paths for task in _all_tasks(path))
        return (text, _chat_about_image()) if has_images else (text,)
    if CompletionRequest in app.request_types:
        return (CompletionRequest(prompt=_TEXT),)
    if EmbeddingRequest in app.request_types:
        return (EmbeddingRequest(input=[_TEXT]),)
    return ()


def _chat_about_image() -> ChatRequest:
    content: list[ContentPart] = [TextPart(type="text", text=_TEXT), ImagePart(type="image", image=_IMAGE)]
    return ChatRequest(messages=[ChatMessage(role="user", content=content)])


def _all_tasks(task: Task[Any, Any]) -> Iterator[Task[Any, Any]]:
    yield task
    for subtask in task.subtasks():
        yield from _all_tasks(subtask)
