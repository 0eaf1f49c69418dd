"""Image generation: models that draw a text."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cornserve.task import Output, Stream, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.engine import Dtype
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.model_settings import ModelSettings
from cornserve_tasklib.sampling_fields import CHARACTERS_PER_TOKEN, STRICT

TOKEN_PIXELS = 16
"""The width and height of the square of pixels that is one token of the denoiser."""

MAX_SIDE = 4096
MAX_STEPS = 200
MAX_PARTIAL_IMAGES = 3
"""Maximum number of previews of an image, as in OpenAI's API."""

MAX_IMAGES = 10
"""Maximum number of images of a request, as in OpenAI's API."""

DEFAULT_SIZE = "1024x1024"

_SIZE = re.compile(r"([1-9][0-9]{1,3})x([1-9][0-9]{1,3})")


def check_size(size: str) -> str:
    """Raises `ValueError` unless the size is valid."""
    match = _SIZE.fullmatch(size)
    sides = [int(side) for side in match.groups()] if match else []
    if not sides or any(side % TOKEN_PIXELS or side > MAX_SIDE for side in sides):
        raise ValueError(
            f"must be WIDTHxHEIGHT, both multiples of {TOKEN_PIXELS} from {TOKEN_PIXELS} to {MAX_SIDE}, such as "
            f"1024x1024, not {size!r}"
        )
    return size


Size = Annotated[str, MaxLen(9), AfterValidator(check_size)]
"""Width and height in pixels: "1024x768"."""

ImageFormat = Literal["png", "jpeg", "webp"]
Quality = Literal["auto", "low", "medium", "high"]

_STEP_DIVISORS: dict[Quality, int] = {"auto": 1, "high": 1, "medium": 2, "low": 4}


class ImageRequest(BaseModel):
    """The fields that requests to generate and to edit images share.

    The names are those of OpenAI's API, or diffusers' for the fields that OpenAI does not provide.
    """

    model_config = STRICT | ConfigDict(frozen=True)

    prompt: Annotated[str, MinLen(1), MaxLen(32_000)]
    """The content of the images."""
    negative_prompt: Annotated[str, MaxLen(32_000)] = " "
    """The content that the images should not have. Only with a `true_cfg_scale` above 1."""
    n: Annotated[int, Ge(1), Le(MAX_IMAGES)] = 1
    """The number of images."""
    size: Size = DEFAULT_SIZE
    """Width and height of the images in pixels, multiples of 16."""
    seed: Annotated[int, Ge(0), Le(2**63 - 1 - MAX_IMAGES)] | None = None
    """The seed of the first image; the following images have the following seeds. Random by default."""
    num_inference_steps: Annotated[int, Ge(1), Le(MAX_STEPS)] | None = None
    """The number of denoising steps. More steps take longer, and add details. The default depends on the model."""
    quality: Quality = "auto"
    """`medium` and `low` have a half and a quarter of the default number of steps, `high` and `auto` all of them."""
    true_cfg_scale: Annotated[float, Ge(1), Le(50)] | None = None
    """The strength of classifier-free guidance: how closely the images follow the prompt. Above 1, each step takes
    twice the time. The default depends on the model."""
    guidance_scale: Annotated[float, Ge(0), Le(50)] | None = None
    """The strength of guidance in a guidance-distilled model such as FLUX.1-dev. Other models refuse it."""
    output_format: ImageFormat = "png"
    """The format of the image files."""
    output_compression: Annotated[int, Ge(0), Le(100)] = 100
    """The quality of JPEG and WebP files in percent."""
    partial_images: Annotated[int, Ge(0), Le(MAX_PARTIAL_IMAGES)] = 0
    """The number of previews of each image in the stream `progress`. An image of few steps has fewer."""

    @property
    def width(self) -> int:
        return int(self.size.partition("x")[0])

    @property
    def height(self) -> int:
        return int(self.size.partition("x")[2])

    def steps(self, default: int, limit: int) -> int:
        """Returns the number of denoising steps.

        Args:
            default: that of the model.
            limit: that of the app. It is the default if it is lower.
        """
        return self.num_inference_steps or max(1, min(default, limit) // _STEP_DIVISORS[self.quality])

    @property
    def image_tokens(self) -> int:
        """The number of tokens of one image in the denoiser."""
        return self.width * self.height // TOKEN_PIXELS**2


class ImageGenerationRequest(ImageRequest):
    """A text to draw."""


class ImageProgress(BaseModel):
    """The end of a denoising step."""

    image: int
    """The position of the image in the response, from 0."""
    step: int
    """The number of completed steps."""
    steps: int
    """The number of all steps."""
    b64_json: str | None = None
    """A preview after this step, as an image file in base64."""


class ImageGenerationResponse(Output):
    """The images of a request."""

    progress: Stream[ImageProgress] = Stream()
    """The steps of all images, as they end."""
    images: list[GeneratedImage] = Field(default_factory=list)
    """The images, in the order of their seeds."""
    size: str = ""
    """Width and height of the images, such as "1024x768". Empty if they have the size of the request."""
    usage: Usage = Usage()
    """The tokens of the prompt in the text encoder, and of the images in the denoiser."""


class ImageGeneratorOptions(BaseModel):
    """Options of the executor of an image generation model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Dtype = "auto"
    """The dtype of weights and latents. `auto` is bfloat16 on a GPU, and float32 on a CPU."""
    max_batch_images: int = Field(default=8, ge=1)
    """The maximum number of images that are denoised together. Further images wait."""
    max_pixels: int = Field(default=2048 * 2048, ge=TOKEN_PIXELS**2)
    """The maximum number of pixels of an image."""
    max_steps: int = Field(default=100, ge=1, le=MAX_STEPS)
    """The maximum number of denoising steps."""
    max_images: int = Field(default=MAX_IMAGES, ge=1, le=MAX_IMAGES)
    """The maximum number of images of a request."""
    gpus: int = Field(default=1, ge=0, le=1)
    """GPUs of a replica. With 0, the model runs on the CPU."""


def image_generation_size(request: ImageRequest) -> InputSize:
    return InputSize(
        text=len(request.prompt) // CHARACTERS_PER_TOKEN, output=request.n * request.image_tokens, items=request.n
    )


class ImageGenerator(ModelSettings, UnitTask[ImageGenerationRequest, ImageGenerationResponse]):
    """Runs a diffusion model of diffusers: text encoder, denoiser and VAE in one executor.

    The denoising steps of all requests are batched together (Qwen-Image) or take turns (Stable Diffusion 3, FLUX.1).
    """

    executor = "image_generator"

    options: ImageGeneratorOptions = ImageGeneratorOptions()
    """Options of the executor."""

    @property
    def replica_gpus(self) -> int:
        return self.options.gpus

    def components(self, request: ImageGenerationRequest) -> frozenset[str]:
        return frozenset({"text_encoder", "denoiser", "vae"})

    def continues(self, request: ImageGenerationRequest) -> bool:
        return True

    def size(self, request: ImageGenerationRequest) -> InputSize:
        return image_generation_size(request)
