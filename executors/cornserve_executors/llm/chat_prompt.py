"""Renders a chat to a prompt, including its media.

vLLM renders chats whose media are raw images. It cannot render chats with encoded media: it does not mix raw and
encoded ones, and for most models it requires the pixels. For such chats, vLLM's template renders a marker for each,
and vLLM's processor replaces the markers, given the entries that its cache would have for the media. Chats with videos
or audio, chats with several large images, and chats with options of media are rendered in the same way, so that their
media are never decoded together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.inputs.engine import MultiModalInput
from vllm.renderers import BaseRenderer
from vllm.renderers.online_renderer import OnlineRenderer

from cornserve.concurrency import gather_all
from cornserve.transport import TensorView
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.chat_media import ChatMedia, RawMedia, ReceivedMedia, not_rendered
from cornserve_executors.llm.connector import tensor_reference
from cornserve_executors.llm.prompt_media import PromptMedium
from cornserve_executors.media.decode_pool import SMALL_PIXELS
from cornserve_executors.vllm.media_decoder import Decoded
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.media import Audio, Media, MediaPart, Modality
from cornserve_tasklib.messages import ChatMessage, ContentPart, TextPart

_RAW_PARTS: dict[Modality, str] = {"image": "image_pil", "audio": "audio_url", "video": "video_url"}
"""vLLM's types of parts with raw media."""


class ChatPrompt:
    """Renders one chat.

    Args:
        embeddings: the embeddings of the encoded media, in order.
        owner: shares the capacity for decoded media fairly with other owners.
    """

    def __init__(
        self, request: ChatRequest, embeddings: Sequence[TensorView], chat_media: ChatMedia, owner: str
    ) -> None:
        self._request = request
        self._chat_media = chat_media
        self._owner = owner
        self._media = chat_media.resolve(request.media_parts, embeddings)
        self._raw = [medium for medium in self._media if isinstance(medium, RawMedia)]
        self._decoded: list[Decoded] = []

    @property
    def _is_rendered_by_vllm(self) -> bool:
        is_small = len(self._raw) == 1 or sum(raw.kept_pixels for raw in self._raw) <= SMALL_PIXELS
        has_plain_images_only = all(
            isinstance(medium, RawMedia) and medium.media.modality == "image" and not medium.media.options.key
            for medium in self._media
        )
        return has_plain_images_only and is_small

    @asynccontextmanager
    async def messages(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yields the messages in vLLM's form. They are valid, and `render` may be called, until the block ends."""
        if self._raw and self._is_rendered_by_vllm:
            async with self._chat_media.decoded(self._raw, self._owner) as self._decoded:
                images = zip(self._raw, self._decoded, strict=True)
                yield self._convert_messages([_part("image_pil", pixels, image.identifier) for image, pixels in images])
        else:
            yield self._convert_messages(
                [self._marker_part(medium) for medium in self._media if not _is_sound(medium.media)]
            )

    def _convert_messages(self, media_parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        parts = iter(media_parts)
        return [_convert_message(message, parts) for message in self._request.messages]

    def _marker_part(self, medium: RawMedia | ReceivedMedia) -> dict[str, Any]:
        modality = medium.media.modality
        kind = _RAW_PARTS[modality] if self._chat_media.encodes(modality) else f"{modality}_embeds"
        return _part(kind, None, medium.identifier)

    @property
    def tensor_references(self) -> dict[str, Any] | None:
        """References to the embeddings, by identifier of the medium."""
        received = [medium for medium in self._media if isinstance(medium, ReceivedMedia)]
        return {medium.identifier: tensor_reference(medium.tensor) for medium in received} or None

    async def render(self, renderer: OnlineRenderer, request: ChatCompletionRequest) -> Any:
        """Returns the engine's prompt. Raises `InvalidRequestError` if the request cannot be rendered."""
        if not self._is_rendered_by_vllm:
            renderer = copy(renderer)
            renderer.renderer = AssemblingRenderer(renderer.renderer, self._assemble)
        try:
            # With its cache, vLLM would omit media that it has rendered before, even if that request was cancelled.
            result = await renderer.render_chat(request, skip_mm_cache=True)
        except InvalidRequestError:
            raise
        except (AssertionError, RuntimeError, ValueError) as error:
            if not self._is_rendered_by_vllm:
                raise
            # vLLM does not name the faulty medium, so process them one by one.
            for raw, decoded in zip(self._raw, self._decoded, strict=True):
                await self._chat_media.process_decoded(raw, decoded)
            if isinstance(error, ValueError):
                raise
            raise not_rendered(error) from error
        if isinstance(result, ErrorResponse):
            raise InvalidRequestError(result.error.message)
        _, (prompt,) = result
        return prompt

    async def _assemble(self, tokens: Sequence[int]) -> MultiModalInput:
        """Returns the engine's prompt for the rendered chat."""
        found = await gather_all(self._chat_media.prompt_medium(medium, self._owner) for medium in self._media)
        processed: list[PromptMedium] = []
        for medium, prompt_medium in zip(self._media, found, strict=True):
            if _is_sound(medium.media):
                processed[-1] = await self._chat_media.with_sound(processed[-1], prompt_medium)
            processed.append(prompt_medium)
        return await self._chat_media.assemble(tokens, self._media, processed)


class AssemblingRenderer:
    """Replaces the renderer inside vLLM's `OnlineRenderer` for chats whose prompt is assembled from processed media."""

    def __init__(self, renderer: BaseRenderer, assemble: Callable[[list[int]], Awaitable[MultiModalInput]]) -> None:
        self._renderer = renderer
        self._assemble = assemble
        self.tokenizer = renderer.tokenizer
        self.get_tokenizer = renderer.get_tokenizer

    async def render_chat_async(self, conversations: Any, chat_params: Any, tok_params: Any, **_: Any) -> Any:
        (messages,) = conversations
        conversation, rendered = await self._renderer.render_messages_async(messages, chat_params)
        del rendered["multi_modal_data"], rendered["multi_modal_uuids"]
        (tokens,) = await self._renderer.tokenize_prompts_async([rendered], tok_params)
        return [conversation], [await self._assemble(tokens["prompt_token_ids"])]


def _is_sound(media: Media) -> bool:
    """Returns whether the medium belongs to the video before it. The template renders only the video."""
    return isinstance(media, Audio) and media.of_video


def _part(kind: str, content: object, identifier: str) -> dict[str, Any]:
    return {"type": kind, kind: content, "uuid": identifier}


def _convert_message(message: ChatMessage, media_parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    fields = message.model_dump(exclude_defaults=True, exclude={"content"})
    if message.content is None:
        return fields
    if isinstance(message.content, str):
        return fields | {"content": message.content}
    parts = [part for part in message.content if not (isinstance(part, MediaPart) and _is_sound(part.media))]
    return fields | {"content": [_convert_part(part, media_parts) for part in parts]}


def _convert_part(part: ContentPart, media_parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    match part:
        case TextPart():
            return part.model_dump()
        case MediaPart():
            return next(media_parts)
    raise InvalidRequestError("unexpected part with a URL or base64: the gateway loads media, executors do not")
