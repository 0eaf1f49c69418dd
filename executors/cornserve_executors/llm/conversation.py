"""Chats as vLLM takes them: their messages, and the prompts that it makes of them.

Where all images of a chat are raw, vLLM does everything. Where some are encoded it cannot: it does not mix the two, and
of most models it knows an image by its pixels only. So its template shows each image by a mark, its processor tells of
each image what a prompt has in the mark's place, and the prompt is assembled here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer

from cornserve.transport import Received
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.connector import reference_to
from cornserve_executors.llm.images import ArrivedImage, Images, RawImage
from cornserve_executors.llm.placeholders import assembled
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.messages import ChatMessage, ImageUrlPart, TextPart


async def conversation_of(request: ChatRequest, received: Sequence[Received], images: Images) -> Conversation:
    return Conversation(request, await images.of(request.image_parts, received), images)


class Conversation:
    def __init__(self, request: ChatRequest, found: Sequence[RawImage | ArrivedImage], images: Images) -> None:
        self._request = request
        self._found = found
        self._images = images
        self._is_raw = all(isinstance(image, RawImage) for image in found)

    @property
    def messages(self) -> list[dict[str, Any]]:
        marks = iter([self._mark(image) for image in self._found])
        return [_message(message, marks) for message in self._request.messages]

    def _mark(self, image: RawImage | ArrivedImage) -> dict[str, Any]:
        if self._is_raw and isinstance(image, RawImage):
            return {"type": "image_pil", "image_pil": image.pixels, "uuid": image.identifier}
        kind = "image_pil" if self._images.encodes else "image_embeds"
        return {"type": kind, kind: None, "uuid": image.identifier}

    @property
    def embeddings(self) -> dict[str, Any] | None:
        """Where the engine finds them, by the images' identifiers."""
        arrived = [image for image in self._found if isinstance(image, ArrivedImage)]
        return {image.identifier: reference_to(image.received) for image in arrived} or None

    async def prompt(self, renderer: OnlineRenderer, request: ChatCompletionRequest) -> Any:
        if not self._is_raw:
            renderer = copy(renderer)
            renderer.renderer = AssemblingRenderer(renderer.renderer, self._found, self._images)
        try:
            # vLLM's cache would leave out what was sent to the engine before, or would have been, but for a cancel.
            result = await renderer.render_chat(request, skip_mm_cache=True)
        except InvalidRequestError:
            raise
        except ValueError:
            for image in self._found:  # Whose fault it is, vLLM does not say.
                await self._images.placeholder(image)
            raise
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        _, (prompt,) = result
        return prompt


class AssemblingRenderer:
    """What vLLM's `OnlineRenderer` asks its renderer for, of a chat some of whose images are encoded."""

    def __init__(self, renderer: BaseRenderer, found: Sequence[RawImage | ArrivedImage], images: Images) -> None:
        self._renderer = renderer
        self._found = found
        self._images = images
        self.tokenizer = renderer.tokenizer
        self.get_tokenizer = renderer.get_tokenizer

    async def render_chat_async(self, conversations: Any, chat_params: Any, tok_params: Any, **_: Any) -> Any:
        (messages,) = conversations
        placeholders = await asyncio.gather(*(self._images.placeholder(image) for image in self._found))
        conversation, shown = await self._renderer.render_messages_async(messages, chat_params)
        del shown["multi_modal_data"], shown["multi_modal_uuids"]
        (tokens,) = await self._renderer.tokenize_prompts_async([shown], tok_params)
        prompt = assembled(tokens["prompt_token_ids"], placeholders)
        if prompt is None:
            raise InvalidRequestError("the model's chat template does not show all of the images")
        return [conversation], [prompt]


def _message(message: ChatMessage, marks: Iterator[dict[str, Any]]) -> dict[str, Any]:
    fields = message.model_dump(exclude_defaults=True, exclude={"content"})
    if message.content is None:
        return fields
    if isinstance(message.content, str):
        return fields | {"content": message.content}
    return fields | {"content": [_part(part, marks) for part in message.content]}


def _part(part: TextPart | ImageUrlPart | ImagePart, marks: Iterator[dict[str, Any]]) -> dict[str, Any]:
    match part:
        case TextPart():
            return part.model_dump()
        case ImagePart():
            return next(marks)
    raise InvalidRequestError("an executor fetches no images: the gateway does (image_url)")
