"""The components of an image generation model as separate unit tasks, which exchange tensors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from cornserve.task import Output, Stream, Tensor, TensorStream, UnitTask, with_streams
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.image_editing import AutoSizedRequest, ImageEditRequest, image_editing_size
from cornserve_tasklib.image_generation import (
    ImageGenerationRequest,
    ImageGenerationResponse,
    ImageGeneratorOptions,
    ImageProgress,
    image_generation_size,
)
from cornserve_tasklib.model_settings import ModelSettings


class EncodedPrompt(Output):
    """The output of the text encoder."""

    embeddings: Tensor = Tensor()
    """The rows of the prompt and, with guidance, of the negative prompt. The metadata is `EncodedPromptInfo`."""


class EncodedPromptInfo(BaseModel):
    """Describes the rows of an `EncodedPrompt`."""

    prompt_tokens: int
    """The number of rows of the prompt. The other rows are those of the negative prompt."""


class EncodedSource(Output):
    """The image to edit, as the denoiser reads it."""

    latents: Tensor = Tensor()
    """A tensor of the shape [1, tokens, channels]. The metadata is `SourceInfo`."""


class SourceInfo(BaseModel):
    """Describes an `EncodedSource`."""

    width: int
    """The width in which the model reads the image, in pixels."""
    height: int
    """The height in which the model reads the image, in pixels."""

    @property
    def size(self) -> str:
        return f"{self.width}x{self.height}"


class DenoiseRequest(AutoSizedRequest):
    """A request with its encoded prompt."""

    embeddings: Tensor
    """See `EncodedPrompt.embeddings`."""
    source: Tensor | None = None
    """See `EncodedSource.latents`. None for images without one."""


class DenoisedLatents(Output):
    """The latents of all images of a request."""

    progress: Stream[ImageProgress] = Stream()
    """The steps of all images, without previews."""
    previews: TensorStream = TensorStream()
    """The steps of all images, for the VAE. Each tensor has the latents of a preview, of the shape
    [1, tokens, channels], or is a zero for a step without a preview. The metadata is a `StepInfo`."""
    latents: Tensor = Tensor()
    """A tensor of the shape [images, tokens, channels]. The metadata is `LatentsInfo`."""


class StepInfo(BaseModel):
    """Describes a tensor of `DenoisedLatents.previews`."""

    progress: ImageProgress
    """The step, without its preview."""
    has_preview: bool
    """Whether the tensor has the latents of a preview."""
    size: str
    """Width and height of the image in pixels."""


class LatentsInfo(BaseModel):
    """Describes `DenoisedLatents`."""

    seeds: list[int]
    """The seed of each image."""
    size: str
    """Width and height of the images in pixels."""
    prompt_tokens: int
    """The number of tokens of the prompt."""


class DecodeRequest(AutoSizedRequest):
    """A request with the latents of its images."""

    latents: Tensor
    """See `DenoisedLatents.latents`."""
    previews: TensorStream | None = None
    """See `DenoisedLatents.previews`. None for requests without previews."""


class ComponentSettings(ModelSettings):
    """The settings of a component that has no further options."""

    dtype: Dtype = "auto"
    """See `ImageGeneratorOptions.dtype`."""
    gpus: int = Field(default=1, ge=0, le=1)
    """See `ImageGeneratorOptions.gpus`."""

    @property
    def replica_gpus(self) -> int:
        return self.gpus


class PromptEncoder(ComponentSettings, UnitTask[ImageGenerationRequest, EncodedPrompt]):
    """Runs the text encoder of an image generation model."""

    executor = "prompt_encoder"

    constant: bool = False
    """Whether the rows are zeros, which need no weights: the input of denoisers that are measured alone."""

    def components(self, request: ImageGenerationRequest) -> frozenset[str]:
        return frozenset({"text_encoder"})

    def input_source(self) -> PromptEncoder:
        return self.model_validate(self.model_dump() | {"constant": True, "gpus": 0})


class EditPromptEncoder(ComponentSettings, UnitTask[ImageEditRequest, EncodedPrompt]):
    """Runs the text encoder of an image editing model, which reads the prompt and the image."""

    executor = "edit_prompt_encoder"

    constant: bool = False
    """See `PromptEncoder.constant`."""

    def components(self, request: ImageEditRequest) -> frozenset[str]:
        return frozenset({"text_encoder"})

    def input_source(self) -> EditPromptEncoder:
        return self.model_validate(self.model_dump() | {"constant": True, "gpus": 0})

    def size(self, request: ImageEditRequest) -> InputSize:
        return image_editing_size(request)


class SourceEncoder(ComponentSettings, UnitTask[ImageEditRequest, EncodedSource]):
    """Runs the encoder of the VAE of an image editing model."""

    executor = "source_encoder"

    constant: bool = False
    """Whether the latents are zeros, which need no weights: the input of denoisers that are measured alone."""

    def components(self, request: ImageEditRequest) -> frozenset[str]:
        return frozenset({"vae_encoder"})

    def input_source(self) -> SourceEncoder:
        return self.model_validate(self.model_dump() | {"constant": True, "gpus": 0})

    def size(self, request: ImageEditRequest) -> InputSize:
        return image_editing_size(request)


class ImageDenoiser(ModelSettings, UnitTask[DenoiseRequest, DenoisedLatents]):
    """Runs the denoiser of an image generation model. The steps of all requests are batched together."""

    executor = "image_denoiser"

    options: ImageGeneratorOptions = ImageGeneratorOptions()
    """Options of the executor."""
    constant: bool = False
    """Whether the latents are zeros, which need no weights: the input of decoders that are measured alone."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def components(self, request: DenoiseRequest) -> frozenset[str]:
        return frozenset({"denoiser"})

    def continues(self, request: DenoiseRequest) -> bool:
        return True

    def input_source(self) -> ImageDenoiser:
        options = self.options.model_copy(update={"gpus": 0})
        return self.model_validate(self.model_dump() | {"constant": True, "options": options})

    def size(self, request: DenoiseRequest) -> InputSize:
        return image_generation_size(request)


class LatentDecoder(ComponentSettings, UnitTask[DecodeRequest, ImageGenerationResponse]):
    """Runs the VAE of an image generation model, and writes image files."""

    executor = "latent_decoder"

    def components(self, request: DecodeRequest) -> frozenset[str]:
        return frozenset({"vae"})

    def continues(self, request: DecodeRequest) -> bool:
        return True

    def size(self, request: DecodeRequest) -> InputSize:
        return image_generation_size(request)


def decode_images(decoder: LatentDecoder, fields: dict[str, Any], denoised: DenoisedLatents) -> ImageGenerationResponse:
    """Returns the images of a request, whose progress comes from the decoder if there are previews to decode.

    Args:
        fields: the fields of the request.
    """
    if fields["partial_images"]:
        request = DecodeRequest(**fields, latents=denoised.latents, previews=denoised.previews)
        return decoder.invoke(request)
    images = decoder.invoke(DecodeRequest(**fields, latents=denoised.latents))
    return with_streams(images, progress=denoised.progress)
