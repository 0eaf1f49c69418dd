"""Renders a chat to a prompt, including its images.

vLLM renders chats whose images are all raw. It cannot render chats with encoded images: it does not mix raw and encoded
images, and for most models it requires the pixels. For such chats, vLLM's template renders a marker for each image,
vLLM's processor computes the tokens that replace the marker, and this module assembles the prompt. Chats with several
large images are rendered in the same way, so that their images are never decoded together.
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
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.messages import ChatMessage, ImageUrlPart, TextPart


class ChatPrompt:
    """Renders one chat.

    Args:
        embeddings: the embeddings of the encoded images, in order.
        owner: shares the capacity for decoded images fairly with other owners.
    """

    def __init__(
        self, request: ChatRequest, embeddings: Sequence[TensorView], chat_images: ChatImages, owner: str
    ) -> None:
        self._request = request
        self._chat_images = chat_images
        self._owner = owner
        self._images = chat_images.resolve(request.image_parts, embeddings)
        self._raw_images = [image for image in self._images if isinstance(image, RawImage)]
        self._decoded: list[PIL.Image.Image] = []

    @property
    def _is_rendered_by_vllm(self) -> bool:
        is_small = len(self._raw_images) == 1 or sum(image.pixels for image in self._raw_images) <= SMALL_PIXELS
        return len(self._raw_images) == len(self._images) and is_small

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yields the messages in vLLM's form. They are valid, and `render` may be called, until the block ends."""
        if self._raw_images and self._is_rendered_by_vllm:
            async with self._chat_images.decoded(self._raw_images, self._owner) as self._decoded:
                images = zip(self._raw_images, self._decoded, strict=True)
                yield self._convert_messages([self._pixels_part(image, pixels) for image, pixels in images])
        else:
            yield self._convert_messages([self._marker_part(image) for image in self._images])

    def _convert_messages(self, image_parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        parts = iter(image_parts)
        return [_convert_message(message, parts) for message in self._request.messages]

    def _pixels_part(self, image: RawImage, pixels: PIL.Image.Image) -> dict[str, Any]:
        return {"type": "image_pil", "image_pil": pixels, "uuid": image.identifier}

    def _marker_part(self, image: RawImage | ReceivedImage) -> dict[str, Any]:
        kind = "image_pil" if self._chat_images.encodes else "image_embeds"
        return {"type": kind, kind: None, "uuid": image.identifier}

    @property
    def tensor_references(self) -> dict[str, Any] | None:
        """References to the embeddings, by image identifier."""
        received = [image for image in self._images if isinstance(image, ReceivedImage)]
        return {image.identifier: tensor_reference(image.tensor) for image in received} or None

    async def render(self, renderer: OnlineRenderer, request: ChatCompletionRequest) -> Any:
        """Returns the engine's prompt. Raises `InvalidRequestError` if the request cannot be rendered."""
        if not self._is_rendered_by_vllm:
            renderer = copy(renderer)
            renderer.renderer = AssemblingRenderer(renderer.renderer, self._placeholders)
        try:
            # With its cache, vLLM would omit images that it has rendered before, even if that request was cancelled.
            result = await renderer.render_chat(request, skip_mm_cache=True)
        except InvalidRequestError:
            raise
        except ValueError:
            # vLLM does not name the faulty image, so process the images one by one.
            for image, pixels in zip(self._raw_images, self._decoded, strict=False):
                await self._chat_images.process(image, pixels)
            raise
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        _, (prompt,) = result
        return prompt

    async def _placeholders(self) -> list[Placeholder]:
        return await gather_all(self._chat_images.placeholder(image, self._owner) for image in self._images)


class AssemblingRenderer:
    """Replaces the renderer inside vLLM's `OnlineRenderer` for chats whose prompt is assembled from placeholders."""

    def __init__(self, renderer: BaseRenderer, make_placeholders: Callable[[], Awaitable[list[Placeholder]]]) -> None:
        self._renderer = renderer
        self._make_placeholders = make_placeholders
        self.tokenizer = renderer.tokenizer
        self.get_tokenizer = renderer.get_tokenizer

    async def render_chat_async(self, conversations: Any, chat_params: Any, tok_params: Any, **_: Any) -> Any:
        (messages,) = conversations
        placeholders = await self._make_placeholders()
        conversation, rendered = await self._renderer.render_messages_async(messages, chat_params)
        del rendered["multi_modal_data"], rendered["multi_modal_uuids"]
        (tokens,) = await self._renderer.tokenize_prompts_async([rendered], tok_params)
        prompt = assemble_prompt(tokens["prompt_token_ids"], placeholders)
        if prompt is None:
            raise InvalidRequestError("the model's chat template does not render all images")
        return [conversation], [prompt]


def _convert_message(message: ChatMessage, image_parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    fields = message.model_dump(exclude_defaults=True, exclude={"content"})
    if message.content is None:
        return fields
    if isinstance(message.content, str):
        return fields | {"content": message.content}
    return fields | {"content": [_convert_part(part, image_parts) for part in message.content]}


def _convert_part(part: TextPart | ImageUrlPart | ImagePart, image_parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    match part:
        case TextPart():
            return part.model_dump()
        case ImagePart():
            return next(image_parts)
    raise InvalidRequestError("unexpected image_url part: the gateway fetches images, executors do not")
