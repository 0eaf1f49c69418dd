"""The media of a chat: raw media, which this engine encodes, and embeddings received from encoder executors.

The decoded size is limited over all requests (`media/decode_pool.py`). vLLM's processor has one thread. A medium
stays decoded while it waits for that thread, and is closed once the processor's result replaces it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import PIL.Image
from transformers import PretrainedConfig
from vllm.inputs.engine import MultiModalInput
from vllm.renderers import BaseRenderer

from cornserve.concurrency import gather_all
from cornserve.transport import TensorView
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.connector import ENCODED
from cornserve_executors.llm.prompt_media import MissingMarkerError, PromptMedium, assemble_prompt
from cornserve_executors.llm.received_media import add_sound, receive_medium
from cornserve_executors.media.decode_pool import DecodePools
from cornserve_executors.media.errors import UnusableMediaError, rejection_reason
from cornserve_executors.vllm.media_decoder import Decoded, MediaDecoder, row_size
from cornserve_executors.vllm.media_metadata import OtherProcessorError
from cornserve_executors.vllm.private_api import processing_thread
from cornserve_executors.vllm.processed_media import ProcessedMedium, medium_marker, process_medium
from cornserve_tasklib.engine import EngineSettings
from cornserve_tasklib.media import MODALITIES, EncodedMedia, Media, MediaPart, Modality, Video

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RawMedia:
    """A media file, which this engine encodes."""

    media: Media
    kept_pixels: int
    """Pixels of an image or of sampled frames, samples of audio. Each takes at most 4 bytes."""
    decode_pixels: int
    """Pixels or samples that are decoded, including those that are not kept."""

    @property
    def identifier(self) -> str:
        """Identifies the contents in vLLM's caches. A file can be an image and a video."""
        return f"video/{self.media.contents}" if isinstance(self.media, Video) else self.media.contents


@dataclass(frozen=True, slots=True)
class ReceivedMedia:
    """A medium whose embeddings have been received from an encoder executor."""

    media: Media
    identifier: str
    encoded: EncodedMedia
    tensor: TensorView


def model_fields(config: EngineSettings) -> dict[str, Any]:
    """Returns the fields of the model's configuration. Empty if it cannot be read, which vLLM explains."""
    try:
        fields, _ = PretrainedConfig.get_config_dict(config.model_id, revision=config.revision)
    except OSError:
        return {}
    return dict(fields)


class ChatMedia:
    """Decodes and processes the media of chats.

    Raises `InvalidRequestError`, with the medium's position in the request, for media that this engine cannot use.
    """

    def __init__(self, model_config: Any, renderer: BaseRenderer) -> None:
        self._model = model_config.model
        self._hidden_size = model_config.get_inputs_embeds_size()
        self._row_sizes = {modality: row_size(model_config, modality) for modality in MODALITIES}
        self._limits: Mapping[str, int] = {}
        self._markers: dict[Modality, list[int]] = {}
        """The prompt of a medium alone, before processing, for each modality that the model accepts."""
        self._decode_pools = DecodePools()
        self._thread = processing_thread(renderer)
        if model_config.supports_multimodal_inputs:
            self._processor = renderer.get_mm_processor()
            self._limits = self._processor.info.allowed_mm_limits
            self._decoder = MediaDecoder(model_config, self._processor.info)
            self._markers = {
                modality: medium_marker(model_config, self._processor, renderer.get_tokenizer(), modality)
                for modality in MODALITIES
                if self.encodes(modality) or (modality in self._limits and not any(self._limits.values()))
            }

    def encodes(self, modality: Modality) -> bool:
        """Returns whether the engine has loaded the model's encoder of this modality."""
        return self._limits.get(modality, 0) > 0

    def resolve(self, parts: Sequence[MediaPart], embeddings: Sequence[TensorView]) -> list[RawMedia | ReceivedMedia]:
        """Returns the medium of each part, in order, without decoding it.

        Args:
            embeddings: the embeddings of the encoded media, in order.

        Raises:
            UnusableMediaError: this engine does not support the medium, or the prompt has too many of its modality.
            RuntimeError: an embedding does not have the shape `(rows, hidden_size)` of this model.
        """
        tensors = iter(embeddings)
        self._check_numbers([part.media for part in parts])
        return [
            self._raw(part.media) if part.embedding is None else self._received(part.media, next(tensors))
            for part in parts
        ]

    @asynccontextmanager
    async def decoded(self, media: Sequence[RawMedia], owner: str) -> AsyncIterator[list[Decoded]]:
        """Decodes media in threads, once memory is available to `owner`. Closes them when the block ends."""
        pool = self._decode_pools.pool_for(sum(raw.decode_pixels for raw in media))
        async with pool.acquire(sum(raw.kept_pixels for raw in media), owner):
            decoded = await gather_all(pool.run(partial(self._decoder.decode, raw.media)) for raw in media)
            try:
                yield decoded
            finally:
                for medium in decoded:
                    if isinstance(medium, PIL.Image.Image):
                        medium.close()

    def _raw(self, media: Media) -> RawMedia:
        self._check_accepted(media)
        if not self.encodes(media.modality):
            raise UnusableMediaError(
                media.where,
                f"the {media.modality} is not encoded, and the language model has no encoder (with_enc: false)",
            )
        self._decoder.arguments(media)  # Raises an error for unknown ones.
        return RawMedia(media, self._decoder.kept_pixels(media), self._decoder.decode_pixels(media))

    def _check_numbers(self, media: Sequence[Media]) -> None:
        numbers = Counter[Modality]()
        for medium in media:
            numbers[medium.modality] += 1
            limit = self._limits.get(medium.modality, 0)
            if 0 < limit < numbers[medium.modality]:
                raise UnusableMediaError(
                    medium.where, f"{self._model} accepts at most {limit} {medium.plural} in a prompt"
                )

    def _check_accepted(self, media: Media) -> None:
        if not self._markers:
            raise UnusableMediaError(media.where, f"{self._model} is a text model and does not accept {media.plural}")
        if media.modality not in self._markers:
            raise UnusableMediaError(media.where, f"{self._model} does not accept {media.plural}")

    def _received(self, media: Media, tensor: TensorView) -> ReceivedMedia:
        self._check_accepted(media)
        encoded = EncodedMedia.model_validate_json(tensor.metadata)
        expected = (encoded.rows, self._row_sizes[media.modality])
        if tensor.shape != expected:
            raise RuntimeError(
                f"{media.where}: the encoder sent embeddings of shape {tensor.shape}, "
                f"but the language model expects {expected}"
            )
        return ReceivedMedia(media, f"{ENCODED}{encoded.key}", encoded, tensor)

    async def prompt_medium(self, medium: RawMedia | ReceivedMedia, owner: str) -> PromptMedium:
        """Returns the medium after vLLM's processor."""
        if isinstance(medium, ReceivedMedia):
            return PromptMedium(medium.identifier, await self._run(partial(self._receive, medium)))
        async with self.decoded([medium], owner) as (decoded,):
            return PromptMedium(medium.identifier, await self.process_decoded(medium, decoded))

    async def with_sound(self, video: PromptMedium, sound: PromptMedium) -> PromptMedium:
        """Returns the video of a sound, in whose tokens the sound is."""
        return await self._run(partial(add_sound, self._processor, video, sound))

    async def process_decoded(self, raw: RawMedia, decoded: Decoded) -> ProcessedMedium:
        """Runs the model's processor on a decoded medium."""
        modality, arguments = raw.media.modality, self._decoder.arguments(raw.media)
        try:
            return await self._run(
                partial(process_medium, self._processor, self._markers[modality], modality, decoded, arguments)
            )
        except ValueError as error:
            reason = f"the model's processor rejects it: {rejection_reason(error)}"
            raise UnusableMediaError(raw.media.where, reason) from error

    async def assemble(
        self, tokens: Sequence[int], media: Sequence[RawMedia | ReceivedMedia], processed: Sequence[PromptMedium]
    ) -> MultiModalInput:
        """Returns the engine's prompt for a rendered chat.

        Args:
            processed: the media after vLLM's processor.

        Raises:
            RuntimeError: a received medium is of another model.
        """
        try:
            return await self._run(partial(assemble_prompt, self._processor, tokens, processed))
        except MissingMarkerError as error:
            for medium in media:
                if isinstance(medium, ReceivedMedia):
                    await self._run(partial(self._check_prompt_updates, medium))
            raise not_rendered(error) from error

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _receive(self, received: ReceivedMedia) -> ProcessedMedium:
        modality, encoded, where = received.media.modality, received.encoded, received.media.where
        try:
            processed = receive_medium(self._processor, modality, encoded, self._hidden_size)
        except OtherProcessorError as error:
            raise _other_processor_error(where, str(error)) from error
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:  # of damaged metadata
            raise _other_processor_error(where, f"its metadata is damaged: {error}") from error
        if processed.rows != encoded.rows:
            raise RuntimeError(
                f"{where}: the encoder sent {encoded.rows} rows instead of {processed.rows}: "
                "check that it has the same model"
            )
        return processed

    def _check_prompt_updates(self, received: ReceivedMedia) -> None:
        """Raises `RuntimeError` if the prompt updates do not apply to the medium alone."""
        medium = PromptMedium(received.identifier, self._receive(received))
        try:
            assemble_prompt(self._processor, self._markers[received.media.modality], [medium])
        except MissingMarkerError as error:
            reason = f"its changes of the prompt do not apply: {error}"
            raise _other_processor_error(received.media.where, reason) from error


def not_rendered(error: Exception) -> InvalidRequestError:
    return InvalidRequestError(f"the media have no place in the chat that the model's template has rendered: {error}")


def _other_processor_error(where: str, reason: str) -> RuntimeError:
    return RuntimeError(
        f"{where}: the embeddings cannot be used: {reason}: check that the encoder has the same model and the same "
        "version of vLLM"
    )
