"""Engines that run one component each, for the components that only an image editing model has."""

from __future__ import annotations

from functools import partial

import torch
from diffusers import AutoencoderKLQwenImage, QwenImageEditPipeline

from cornserve_executors.image_generator.component_engines import ComponentEngine, ZeroPrompts
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.editing import (
    WARM_UP_EDIT,
    SourceImages,
    encode_edit_prompts,
    encode_source,
    scaled_size,
    source_latents,
)
from cornserve_executors.image_generator.pipeline import load_config, load_pipeline, select_dtype
from cornserve_executors.media.image_decoding import image_size
from cornserve_tasklib.image_components import ComponentSettings, EditPromptEncoder, SourceEncoder, SourceInfo
from cornserve_tasklib.image_editing import ImageEditRequest
from cornserve_tasklib.image_generation import TOKEN_PIXELS


class _SourceEngine(ComponentEngine):
    """Reads the images that are edited."""

    def __init__(self, config: ComponentSettings, components: tuple[str, ...]) -> None:
        super().__init__()
        self._pipeline = load_pipeline(
            config, config.dtype, self.device.name, components, pipeline_class=QwenImageEditPipeline
        )
        self._sources = SourceImages(self._pipeline.image_processor)

    def shutdown(self) -> None:
        super().shutdown()
        self._sources.shutdown()


class EditPromptEncoderEngine(_SourceEngine):
    def __init__(self, config: EditPromptEncoder) -> None:
        """Loads the text encoder. Blocks."""
        super().__init__(config, ("text_encoder", "tokenizer", "processor"))

    async def warm_up(self) -> None:
        await self.encode(WARM_UP_EDIT, "warm-up")

    async def encode(self, request: ImageEditRequest, request_id: str) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long, and for an image that cannot be used."""
        source = await self._sources.scaled(request.image, request_id)
        return await self.device.run(partial(encode_edit_prompts, self._pipeline, request, source))


class SourceEncoderEngine(_SourceEngine):
    def __init__(self, config: SourceEncoder) -> None:
        """Loads the VAE. Blocks."""
        super().__init__(config, ("vae",))
        self._dtype = select_dtype(config.dtype, self.device.name)

    async def warm_up(self) -> None:
        await self.encode(WARM_UP_EDIT, "warm-up")

    async def encode(self, request: ImageEditRequest, request_id: str) -> tuple[SourceLatents, SourceInfo]:
        """Raises `InvalidRequestError` for an image that cannot be used."""
        source = await self._sources.scaled(request.image, request_id)
        encode = partial(encode_source, self._pipeline, source, self._dtype, self.device.name)
        return await self.device.run(encode), SourceInfo(width=source.width, height=source.height)


class ConstantEditPromptEngine(ComponentEngine):
    """Returns zeros with the shape of encoded prompts and images."""

    def __init__(self, config: EditPromptEncoder) -> None:
        """Loads the tokenizer and the processor. Blocks."""
        super().__init__()
        components = ("tokenizer", "processor")
        pipeline = load_pipeline(
            config, config.dtype, self.device.name, components, pipeline_class=QwenImageEditPipeline
        )
        self._image_processor = pipeline.processor.image_processor
        self._prompts = ZeroPrompts(config, pipeline, self.device.name)

    async def warm_up(self) -> None:
        await self.encode(WARM_UP_EDIT, "warm-up")

    async def encode(self, request: ImageEditRequest, request_id: str) -> PromptEmbeddings:
        """Raises `InvalidRequestError` for a prompt that is too long, and for an image that cannot be used."""
        size = scaled_size(image_size(request.image))
        patches = self._image_processor.get_number_of_image_patches(size.height, size.width)
        tokens = patches // self._image_processor.merge_size**2
        return self._prompts.encode(request, further_rows=tokens - 1)  # The prompt's template has one of them.


class ConstantSourceEngine(ComponentEngine):
    """Returns zeros with the shape of encoded images."""

    def __init__(self, config: SourceEncoder) -> None:
        """Reads the configuration of the VAE. Blocks."""
        super().__init__()
        self._dtype = select_dtype(config.dtype, self.device.name)
        self._channels: int = 4 * load_config(config, AutoencoderKLQwenImage, "vae")["z_dim"]

    async def warm_up(self) -> None:
        """Does nothing."""

    async def encode(self, request: ImageEditRequest, request_id: str) -> tuple[SourceLatents, SourceInfo]:
        """Raises `InvalidRequestError` for an image that cannot be used."""
        width, height = scaled_size(image_size(request.image))
        tokens = (height // TOKEN_PIXELS) * (width // TOKEN_PIXELS)
        zeros = torch.zeros(1, tokens, self._channels, dtype=self._dtype)
        return source_latents(zeros, width, height), SourceInfo(width=width, height=height)
