"""The paths of chats that can draw: each path of the language model with each path of the image model."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

from cornserve.task import Task
from cornserve.task.errors import DefinitionError
from cornserve_tasklib.drawing_chat import DrawingChat
from cornserve_tasklib.image_generation import TOKEN_PIXELS
from cornserve_tasklib.image_tasks import GenerateImages
from cornserve_tasklib.llm import Chat, Mllm

_MAX_SIDE = 1024


def drawing_paths(
    model: str, paths: Mapping[str, Task[Any, Any]], drawer: str, drawer_paths: Mapping[str, Task[Any, Any]]
) -> dict[str, DrawingChat]:
    """Returns the paths of the language model, with the first path of the image model or, as PATH-NAME, another one.

    Raises `DefinitionError` unless the models are of these kinds.
    """
    chats = {name: path for name, path in paths.items() if isinstance(path, Chat | Mllm)}
    if not chats:
        raise DefinitionError(f"drawer: {model} is not a model for chats: remove drawer")
    drawers = {name: path for name, path in drawer_paths.items() if isinstance(path, GenerateImages)}
    if not drawers:
        raise DefinitionError(f"drawer: {drawer} does not generate images: use a model such as Qwen/Qwen-Image")
    first = next(iter(drawers))
    return {
        chat_name if name == first else f"{chat_name}-{name}": DrawingChat(chat=chat, drawer=image, size=_size(image))
        for name, image in drawers.items()
        for chat_name, chat in chats.items()
    }


def _size(drawer: GenerateImages) -> str:
    """Returns the largest square that the executor draws, up to 1024 by 1024 pixels."""
    side = min(_MAX_SIDE, isqrt(drawer.options.max_pixels) // TOKEN_PIXELS * TOKEN_PIXELS)
    return f"{side}x{side}"
