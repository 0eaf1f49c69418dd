"""`/v1/images/generations` and `/v1/images/edits`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Literal, Self

from annotated_types import MaxLen
from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import to_json
from typing_extensions import TypedDict

from cornserve.app.response_readers import IMAGE_PROGRESS, IMAGES, Images
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.common_fields import OpenAIRequest, check_app
from cornserve.gateway.endpoints.openai.uploads import inspect_upload
from cornserve.gateway.endpoints.read_form import Upload, read_form
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.chat_response import Usage
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.image_editing import EditSize, ImageEditRequest
from cornserve_tasklib.image_generation import (
    DEFAULT_SIZE,
    ImageGenerationRequest,
    ImageProgress,
    ImageRequest,
    Size,
)


def _resolve_auto(size: object) -> object:
    return DEFAULT_SIZE if size == "auto" else size


class CreateImageRequest(ImageGenerationRequest, OpenAIRequest):
    """OpenAI's request body."""

    size: Annotated[Size, BeforeValidator(_resolve_auto)] = DEFAULT_SIZE
    """`auto` is the default."""
    response_format: Literal["b64_json"] = "b64_json"
    """The response contains the images. URLs are not supported."""
    background: Literal["auto", "opaque"] = "auto"
    """All images are opaque."""
    safety_identifier: str | None = None
    """Accepted and not used."""
    stream: bool = False
    progress: bool = False
    """Whether a stream has an event for each denoising step."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if "negative_prompt" in self.model_fields_set and self.true_cfg_scale == 1:
            raise ValueError("negative_prompt: is set, but true_cfg_scale is 1: set a true_cfg_scale above 1")
        if self.quality != "auto" and self.num_inference_steps is not None:
            raise ValueError("quality: num_inference_steps is also set: remove one")
        if "output_compression" in self.model_fields_set and self.output_format == "png":
            raise ValueError("output_compression: is set, but output_format is png: set output_format to jpeg or webp")
        for field in ("partial_images", "progress"):
            if getattr(self, field) and not self.stream:
                raise ValueError(f"{field}: is set, but stream is false: set stream to true")
        return self


class ImageTokenDetails(TypedDict):
    text_tokens: int
    image_tokens: int


class ImageUsage(TypedDict):
    """The tokens of the prompt, and of the images in the denoiser."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: ImageTokenDetails


class ImageList(BaseModel):
    created: int
    data: list[GeneratedImage]
    output_format: str
    size: str
    background: Literal["opaque"] = "opaque"
    usage: ImageUsage


class EditImageForm(CreateImageRequest):
    """OpenAI's form: the image to change, and the fields of a request for images."""

    model_config = ConfigDict(strict=False)

    image: Upload | None = None
    images: Annotated[list[Upload], MaxLen(1), Field(alias="image[]")] = Field(default_factory=list)
    """The name under which clients send a list of images."""
    size: EditSize = "auto"

    @model_validator(mode="after")
    def _check_image(self) -> Self:
        if self.image is None and not self.images:
            raise ValueError("image: missing: send one file, as `image` or as `image[]`")
        if self.image is not None and self.images:
            raise ValueError("image: send one file, as `image` or as `image[]`")
        return self

    @property
    def upload(self) -> Upload:
        return self.images[0] if self.image is None else self.image


async def create_image(request: Request, context: Context) -> SendResponse:
    """Draws a text, as a whole or (with `stream`) with events for previews."""
    body = await read_fields(request, CreateImageRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "image generation")

    return await _respond(handler, body, tracked(ImageGenerationRequest, body), "image_generation")


async def edit_image(request: Request, context: Context) -> SendResponse:
    """Changes an image, as a whole or (with `stream`) with events for previews."""
    form = await read_form(request, EditImageForm)
    handler = await RequestHandler.create(context, form.model, request, type(form))
    check_app(handler.served_app, form.model, "image editing")
    image = await inspect_upload(form.upload, "image", "image", context.admission.limits)
    handler.count_media(["image"])
    return await _respond(handler, form, tracked(ImageEditRequest, form, image=image), "image_edit")


async def _respond(
    handler: RequestHandler, body: CreateImageRequest, request: ImageRequest, events: str
) -> SendResponse:
    """Runs the request.

    Args:
        events: the prefix of the types of OpenAI's events.
    """

    async def respond(session: Session) -> bytes:
        return await _image_list(body, await session.run(request, IMAGES))

    return handler.stream(partial(_events, body, request, events)) if body.stream else await handler.respond(respond)


async def _events(
    body: CreateImageRequest, request: ImageRequest, prefix: str, session: Session
) -> AsyncGenerator[bytes, None]:
    """Yields OpenAI's events, and those of the steps."""
    common = {"created_at": int(time.time()), "quality": body.quality}
    previews = Counter[int]()
    async for progress in _progress(session, request):
        if body.progress:
            step = {"step": progress.step, "steps": progress.steps, "image": progress.image}
            yield sse.encode_typed_event(f"{prefix}.progress", step)
        if progress.b64_json is not None:
            number = previews[progress.image]
            preview = {"b64_json": progress.b64_json, "partial_image_index": number, "image": progress.image}
            yield sse.encode_typed_event(f"{prefix}.partial_image", preview | common | _properties(body))
            previews[progress.image] += 1
    images = await session.run(request, IMAGES)
    for number, image in enumerate(images.images):
        fields = {**common, **_properties(body, images.size), "usage": _openai_usage(images.usage)}
        completed = {**image.model_dump(), "image": number, **fields}
        yield sse.encode_typed_event(f"{prefix}.completed", completed)


async def _progress(session: Session, request: ImageRequest) -> AsyncGenerator[ImageProgress, None]:
    progress = await session.run(request, IMAGE_PROGRESS)
    if isinstance(progress, Stream):
        async for step in progress:
            yield step


async def _image_list(body: CreateImageRequest, images: Images) -> bytes:
    """Returns the JSON of an `ImageList`. An image may have megabytes: yields to the event loop after each."""
    data: list[bytes] = []
    for image in images.images:
        data.append(to_json(image))
        await asyncio.sleep(0)
    tail = to_json(
        {"created": int(time.time()), **_properties(body, images.size), "usage": _openai_usage(images.usage)}
    )[1:]
    return b'{"data":[' + b",".join(data) + b"]," + tail


def _properties(body: CreateImageRequest, size: str = "") -> dict[str, str]:
    return {"output_format": body.output_format, "size": size or body.size, "background": "opaque"}


def _openai_usage(usage: Usage) -> ImageUsage:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "input_tokens_details": {"text_tokens": usage.prompt_tokens, "image_tokens": 0},
    }
