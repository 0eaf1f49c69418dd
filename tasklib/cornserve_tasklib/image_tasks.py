"""The composite tasks of images, in one executor or with the components of the model in separate ones."""

from __future__ import annotations

from pydantic import BaseModel

from cornserve.task import Task
from cornserve_tasklib.image_components import (
    DenoiseRequest,
    EditPromptEncoder,
    ImageDenoiser,
    LatentDecoder,
    PromptEncoder,
    SourceEncoder,
    decode_images,
)
from cornserve_tasklib.image_editing import ImageEditor, ImageEditRequest
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
    ImageGeneratorOptions,
)


class _ImageTaskSettings(BaseModel):
    model_id: str
    """See `ImageGenerator.model_id`."""
    revision: str | None = None
    """See `ImageGenerator.revision`."""
    options: ImageGeneratorOptions = ImageGeneratorOptions()
    """See `ImageGenerator.options`."""
    split: bool = False
    """Whether text encoder, denoiser and VAE run in separate executors."""


class GenerateImages(_ImageTaskSettings, Task[ImageGenerationRequest, ImageGenerationResponse]):
    """Draws a text with one model."""

    def post_init(self) -> None:
        model, revision, options = self.model_id, self.revision, self.options
        if self.split:
            dtype, gpus = options.dtype, options.gpus
            self.prompt_encoder = PromptEncoder(model_id=model, revision=revision, dtype=dtype, gpus=gpus)
            self.denoiser = ImageDenoiser(model_id=model, revision=revision, options=options)
            self.decoder = LatentDecoder(model_id=model, revision=revision, dtype=dtype, gpus=gpus)
        else:
            self.generator = ImageGenerator(model_id=model, revision=revision, options=options)

    def invoke(self, request: ImageGenerationRequest) -> ImageGenerationResponse:
        if not self.split:
            return self.generator.invoke(request)
        fields = request.model_dump()
        encoded = self.prompt_encoder.invoke(request)
        denoised = self.denoiser.invoke(DenoiseRequest(**fields, embeddings=encoded.embeddings))
        return decode_images(self.decoder, fields, denoised)


class EditImages(_ImageTaskSettings, Task[ImageEditRequest, ImageGenerationResponse]):
    """Edits an image with one model."""

    def post_init(self) -> None:
        model, revision, options = self.model_id, self.revision, self.options
        if self.split:
            dtype, gpus = options.dtype, options.gpus
            self.prompt_encoder = EditPromptEncoder(model_id=model, revision=revision, dtype=dtype, gpus=gpus)
            self.source_encoder = SourceEncoder(model_id=model, revision=revision, dtype=dtype, gpus=gpus)
            self.denoiser = ImageDenoiser(model_id=model, revision=revision, options=options)
            self.decoder = LatentDecoder(model_id=model, revision=revision, dtype=dtype, gpus=gpus)
        else:
            self.editor = ImageEditor(model_id=model, revision=revision, options=options)

    def invoke(self, request: ImageEditRequest) -> ImageGenerationResponse:
        if not self.split:
            return self.editor.invoke(request)
        fields = request.model_dump(exclude={"image"})
        encoded = self.prompt_encoder.invoke(request)
        source = self.source_encoder.invoke(request)
        denoised = self.denoiser.invoke(DenoiseRequest(**fields, embeddings=encoded.embeddings, source=source.latents))
        return decode_images(self.decoder, fields, denoised)
