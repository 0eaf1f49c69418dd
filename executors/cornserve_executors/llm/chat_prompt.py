"""Chats as vLLM takes them: their messages, and the prompts that it makes of them.

Where all images of a chat are raw, vLLM does everything. Where some are encoded it cannot: it does not mix the two, and
of most models it knows an image by its pixels only. So its template shows each image by a mark, its processor tells of
each image what a prompt has in the mark's place, and the prompt is assembled here. So are those with several large
images, which are never open together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

import PIL.Image
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.renderers import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer

from cornserve.concurrency import gather_all
from cornserve.transport import TensorView
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.chat_images import SMALL_PIXELS, ChatImages, RawImage, ReceivedImage
from cornserve_executors.llm.connector import tensor_reference
from cornserve_executors.llm.placeholders import Placeholder, assemble_prompt
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.messages import ChatMessage, ImageUrlPart, TextPart


class ChatPrompt:
    """One chat on its way into vLLM.

    Args:
        received: the embeddings of those of its images that are encoded, in their order.
        owner: in whose turn its images are opened.
    """

    def __init__(self, request: ChatRequest, received: Sequence[TensorView], images: ChatImages, owner: str) -> None:
        self._request = request
        self._found = images.of(request.image_parts, received)
        self._images = images
        self._owner = owner
        self._raw = [image for image in self._found if isinstance(image, RawImage)]
        self._opened: list[PIL.Image.Image] = []

    @property
    def _is_vllms(self) -> bool:
        """Several large images are opened one after the other, so vLLM cannot have them together."""
        is_little = len(self._raw) == 1 or sum(image.pixels for image in self._raw) <= SMALL_PIXELS
        return len(self._raw) == len(self._found) and is_little

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """As vLLM takes them, for as long as the block lasts."""
        if self._raw and self._is_vllms:
            async with self._images.opened(self._raw, self._owner) as self._opened:
                yield self._shown([self._picture(*one) for one in zip(self._raw, self._opened, strict=True)])
        else:
            yield self._shown([self._mark(image) for image in self._found])

    def _shown(self, images: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        marks = iter(images)
        return [_message(message, marks) for message in self._request.messages]

    def _picture(self, image: RawImage, picture: PIL.Image.Image) -> dict[str, Any]:
        return {"type": "image_pil", "image_pil": picture, "uuid": image.identifier}

    def _mark(self, image: RawImage | ReceivedImage) -> dict[str, Any]:
        kind = "image_pil" if self._images.encodes else "image_embeds"
        return {"type": kind, kind: None, "uuid": image.identifier}

    @property
    def embeddings(self) -> dict[str, Any] | None:
        """Where the engine finds them, by the images' identifiers."""
        arrived = [image for image in self._found if isinstance(image, ReceivedImage)]
        return {image.identifier: tensor_reference(image.received) for image in arrived} or None

    async def prompt(self, renderer: OnlineRenderer, request: ChatCompletionRequest) -> Any:
        """While the block of `messages` lasts."""
        if not self._is_vllms:
            renderer = copy(renderer)
            renderer.renderer = AssemblingRenderer(renderer.renderer, self._placeholders)
        try:
            # vLLM's cache would leave out what was sent to the engine before, or would have been, but for a cancel.
            result = await renderer.render_chat(request, skip_mm_cache=True)
        except InvalidRequestError:
            raise
        except ValueError:
            for image, picture in zip(self._raw, self._opened, strict=False):
                await self._images.processed(image, picture)  # Whose fault it is, vLLM does not say.
            raise
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        _, (prompt,) = result
        return prompt

    async def _placeholders(self) -> list[Placeholder]:
        return await gather_all(self._images.placeholder(image, self._owner) for image in self._found)


class AssemblingRenderer:
    """What vLLM's `OnlineRenderer` asks its renderer for, of a chat that vLLM does not see whole."""

    def __init__(self, renderer: BaseRenderer, make_placeholders: Callable[[], Awaitable[list[Placeholder]]]) -> None:
        self._renderer = renderer
        self._make_placeholders = make_placeholders
        self.tokenizer = renderer.tokenizer
        self.get_tokenizer = renderer.get_tokenizer

    async def render_chat_async(self, conversations: Any, chat_params: Any, tok_params: Any, **_: Any) -> Any:
        (messages,) = conversations
        placeholders = await self._make_placeholders()
        conversation, shown = await self._renderer.render_messages_async(messages, chat_params)
        del shown["multi_modal_data"], shown["multi_modal_uuids"]
        (tokens,) = await self._renderer.tokenize_prompts_async([shown], tok_params)
        prompt = assemble_prompt(tokens["prompt_token_ids"], placeholders)
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
