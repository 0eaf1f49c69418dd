"""The composite task that draws a text, in one executor or with the components of the model in separate ones."""

from __future__ import annotations

from cornserve.task import Task
from cornserve_tasklib.image_components import (
    DenoiseRequest,
    ImageDenoiser,
    LatentDecoder,
    PromptEncoder,
    decode_images,
)
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGenerator,
    ImageGeneratorOptions,
)


class GenerateImages(Task[ImageGenerationRequest, ImageGenerationResponse]):
    """Draws a text with one model."""

    model_id: str
    """See `ImageGenerator.model_id`."""
    revision: str | None = None
    """See `ImageGenerator.revision`."""
    options: ImageGeneratorOptions = ImageGeneratorOptions()
    """See `ImageGenerator.options`."""
    split: bool = False
    """Whether text encoder, denoiser and VAE run in separate executors."""

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
