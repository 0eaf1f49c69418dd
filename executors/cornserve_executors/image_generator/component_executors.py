"""The executors of the components of an image generation model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import Metric

from cornserve.task import TensorStream
from cornserve.transport import TensorView
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.image_generator.progress_sender import progress_sender, step_sender
from cornserve_executors.image_generator.stats import ImageGeneratorStats
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.image_components import (
    DecodeRequest,
    DenoisedLatents,
    DenoiseRequest,
    EditPromptEncoder,
    EncodedPrompt,
    EncodedPromptInfo,
    EncodedSource,
    ImageDenoiser,
    LatentDecoder,
    LatentsInfo,
    PromptEncoder,
    SourceEncoder,
    SourceInfo,
    StepInfo,
)
from cornserve_tasklib.image_editing import AUTO, ImageEditRequest
from cornserve_tasklib.image_generation import ImageGenerationRequest, ImageGenerationResponse

if TYPE_CHECKING:
    from cornserve_executors.device_thread import DeviceThread
    from cornserve_executors.image_generator.component_engines import (
        ConstantLatentsEngine,
        ConstantPromptEngine,
        ImageDenoiserEngine,
        LatentDecoderEngine,
        PromptEncoderEngine,
    )
    from cornserve_executors.image_generator.denoiser import PromptEmbeddings, SourceLatents
    from cornserve_executors.image_generator.editing_component_engines import (
        ConstantEditPromptEngine,
        ConstantSourceEngine,
        EditPromptEncoderEngine,
        SourceEncoderEngine,
    )


class PromptEncoderExecutor(DeviceExecutor[PromptEncoder, ImageGenerationRequest, EncodedPrompt]):
    library = "diffusers"

    _engine: PromptEncoderEngine | ConstantPromptEngine

    def import_engine(self) -> Callable[[PromptEncoder], PromptEncoderEngine | ConstantPromptEngine]:
        from cornserve_executors.image_generator.component_engines import ConstantPromptEngine, PromptEncoderEngine

        return ConstantPromptEngine if self.config.constant else PromptEncoderEngine

    async def invoke(self, request: ImageGenerationRequest, context: InvocationContext) -> EncodedPrompt:
        embeddings = await self._engine.encode(request)
        return await _publish_prompt(context, embeddings, self._engine.device)


class EditPromptEncoderExecutor(DeviceExecutor[EditPromptEncoder, ImageEditRequest, EncodedPrompt]):
    library = "diffusers"

    _engine: EditPromptEncoderEngine | ConstantEditPromptEngine

    def import_engine(self) -> Callable[[EditPromptEncoder], EditPromptEncoderEngine | ConstantEditPromptEngine]:
        from cornserve_executors.image_generator.editing_component_engines import (
            ConstantEditPromptEngine,
            EditPromptEncoderEngine,
        )

        return ConstantEditPromptEngine if self.config.constant else EditPromptEncoderEngine

    async def invoke(self, request: ImageEditRequest, context: InvocationContext) -> EncodedPrompt:
        embeddings = await self._engine.encode(request, context.request_id)
        return await _publish_prompt(context, embeddings, self._engine.device)


class SourceEncoderExecutor(DeviceExecutor[SourceEncoder, ImageEditRequest, EncodedSource]):
    library = "diffusers"

    _engine: SourceEncoderEngine | ConstantSourceEngine

    def import_engine(self) -> Callable[[SourceEncoder], SourceEncoderEngine | ConstantSourceEngine]:
        from cornserve_executors.image_generator.editing_component_engines import (
            ConstantSourceEngine,
            SourceEncoderEngine,
        )

        return ConstantSourceEngine if self.config.constant else SourceEncoderEngine

    async def invoke(self, request: ImageEditRequest, context: InvocationContext) -> EncodedSource:
        source, info = await self._engine.encode(request, context.request_id)
        await _publish(context, "latents", source.latents, info.model_dump_json())
        return EncodedSource()


class ImageDenoiserExecutor(DeviceExecutor[ImageDenoiser, DenoiseRequest, DenoisedLatents]):
    library = "diffusers"
    repeats = "in any order"

    _engine: ImageDenoiserEngine | ConstantLatentsEngine

    def __init__(self, config: ImageDenoiser) -> None:
        super().__init__(config)
        self._stats = ImageGeneratorStats()

    def import_engine(self) -> Callable[[ImageDenoiser], ImageDenoiserEngine | ConstantLatentsEngine]:
        from cornserve_executors.image_generator.component_engines import ConstantLatentsEngine, ImageDenoiserEngine

        if self.config.constant:
            return ConstantLatentsEngine
        return partial(ImageDenoiserEngine, stats=self._stats)

    async def invoke(self, request: DenoiseRequest, context: InvocationContext) -> DenoisedLatents:
        from cornserve_executors.image_generator.components import seeds
        from cornserve_executors.image_generator.denoiser import PromptEmbeddings

        if request.size != AUTO:
            self._engine.check(request)
        prompt, *sources = await context.receive_all(
            [request.embeddings] if request.source is None else [request.embeddings, request.source]
        )
        info = EncodedPromptInfo.model_validate_json(prompt.metadata)
        embeddings = PromptEmbeddings.split(await _read(prompt, self._engine.device.name), info.prompt_tokens)
        source = None
        if sources:
            source, request = await self._read_source(sources[0], request)
        if not context.is_requested("previews"):
            request = request.model_copy(update={"partial_images": 0})
        image_seeds = seeds(context.with_seed(request))
        latents = await self._engine.denoise(
            request, embeddings, image_seeds, context.request_id, step_sender(context, request.size), source
        )
        described = LatentsInfo(seeds=image_seeds, size=request.size, prompt_tokens=info.prompt_tokens)
        await _publish(context, "latents", latents, described.model_dump_json())
        return DenoisedLatents()

    async def _read_source(self, received: TensorView, request: DenoiseRequest) -> tuple[SourceLatents, DenoiseRequest]:
        """Returns the image to edit, and the request with the size of the results."""
        from cornserve_executors.image_generator.editing import source_latents

        info = SourceInfo.model_validate_json(received.metadata)
        if request.size == AUTO:
            request = request.model_copy(update={"size": info.size})
            self._engine.check(request)
        latents = await _read(received, self._engine.device.name)
        return source_latents(latents, info.width, info.height), request

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


class LatentDecoderExecutor(DeviceExecutor[LatentDecoder, DecodeRequest, ImageGenerationResponse]):
    library = "diffusers"
    repeats = "in any order"

    _engine: LatentDecoderEngine

    def import_engine(self) -> Callable[[LatentDecoder], LatentDecoderEngine]:
        from cornserve_executors.image_generator.component_engines import LatentDecoderEngine

        return LatentDecoderEngine

    async def invoke(self, request: DecodeRequest, context: InvocationContext) -> ImageGenerationResponse:
        if request.previews is not None:
            await self._send_steps(request, request.previews, context)
        received = await context.receive(request.latents)
        info = LatentsInfo.model_validate_json(received.metadata)
        request = request.model_copy(update={"size": info.size})
        files = await self._engine.decode(request, await _read(received, self._engine.device.name))
        images = [GeneratedImage(b64_json=file, seed=seed) for file, seed in zip(files, info.seeds, strict=True)]
        usage = Usage(prompt_tokens=info.prompt_tokens, completion_tokens=request.n * request.image_tokens)
        return ImageGenerationResponse(images=images, size=info.size, usage=usage)

    async def _send_steps(self, request: DecodeRequest, previews: TensorStream, context: InvocationContext) -> None:
        """Sends the steps of all images, with their previews as image files, until the last step.

        Reads the steps even if the caller does not: the denoiser waits while too many are unread.
        """
        send = progress_sender(context)
        async for received in context.receive_stream(previews):
            if send is None:
                continue
            info = StepInfo.model_validate_json(received.metadata)
            progress = info.progress
            if info.has_preview:
                latents = await _read(received, self._engine.device.name)
                (file,) = await self._engine.decode(request.model_copy(update={"size": info.size}), latents)
                progress = progress.model_copy(update={"b64_json": file})
            await send(progress)


async def _publish_prompt(
    context: InvocationContext, embeddings: PromptEmbeddings, device: DeviceThread
) -> EncodedPrompt:
    info = EncodedPromptInfo(prompt_tokens=embeddings.prompt.shape[1])
    await _publish(context, "embeddings", await device.run(embeddings.joined), info.model_dump_json())
    return EncodedPrompt()


async def _publish(context: InvocationContext, output: str, tensor: Any, metadata: str) -> None:
    """Publishes a tensor that the device has completed."""
    from cornserve_executors import tensor_copies

    slot = await context.allocate(output, tensor.nbytes)
    await asyncio.to_thread(tensor_copies.copy_to_buffer, tensor, slot.buffer)
    slot.publish(tensor_copies.dtype_name(tensor.dtype), tuple(tensor.shape), metadata.encode())


async def _read(received: TensorView, device: str) -> Any:
    """Returns a copy of a received tensor."""
    from cornserve_executors import tensor_copies

    copy = tensor_copies.copy_from_buffer
    tensor = await asyncio.to_thread(copy, received.view, received.dtype, received.shape, device)
    received.check()
    return tensor
