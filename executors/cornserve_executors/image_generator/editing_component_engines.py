"""Engines that run one component each, for the components that only an image editing model has."""

from __future__ import annotations

from functools import partial

from diffusers import QwenImageEditPipeline

from cornserve_executors.image_generator.component_engines import ComponentEngine
from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
from cornserve_executors.image_generator.editing import (
    WARM_UP_EDIT,
    SourceImages,
    encode_edit_prompts,
    encode_source,
)
from cornserve_executors.image_generator.pipeline import load_pipeline, select_dtype
from cornserve_tasklib.image_components import ComponentSettings, EditPromptEncoder, SourceEncoder, SourceInfo
from cornserve_tasklib.image_editing import ImageEditRequest


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
