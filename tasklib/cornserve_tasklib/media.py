"""Media in requests: images, audio and video, raw and encoded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import ceil
from typing import Annotated, ClassVar, Final, Literal, Self, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field

from cornserve.task import Blob, Tensor
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.media_options import MediaOptions
from cornserve_tasklib.sampling_fields import STRICT

PIXELS_PER_TOKEN = 28 * 28
"""The pixels of one token in Qwen2.5-VL, by which the tokens of other models are estimated, too."""

AUDIO_TOKENS_PER_SECOND = 25
"""The tokens of one second in Qwen2-Audio, by which the tokens of other models are estimated, too."""

VIDEO_FRAMES_PER_SECOND = 2
"""The frames of one second that Qwen2.5-VL reads, by which the tokens of other models are estimated, too."""

VIDEO_FRAMES_PER_TOKEN = 2
"""The consecutive frames that Qwen2.5-VL merges."""

Modality = Literal["image", "audio", "video"]
"""The type of a medium."""

MODALITIES: tuple[Modality, ...] = get_args(Modality)

VISION: Final[tuple[Modality, ...]] = ("image", "video")
"""The modalities that the vision tower of a model encodes."""


class MediaFile(BaseModel):
    """A media file of a request. The gateway has inspected its header, but not decoded it."""

    model_config = STRICT | ConfigDict(frozen=True)

    data: Blob | None = None
    """The file, or None if the medium is encoded: a language model receives either the file or the embeddings."""
    format: str
    """The name of the format: "PNG", "JPEG", … for images, as in Pillow; "WAV", … for audio; "MP4", … for videos."""
    digest: str
    """SHA-256 of the file, in hexadecimal. Identifies the medium in caches."""
    where: str
    """The position in the request, for error messages: "messages[0].content[1]"."""
    options: MediaOptions = Field(default=MediaOptions(), exclude_if=lambda options: not options.key)
    """The frames and the size in which the model receives the medium, if the request sets them."""

    @property
    def contents(self) -> str:
        """Identifies the file and the options. Equal contents have equal embeddings."""
        return f"{self.digest},{self.options.key}" if self.options.key else self.digest

    @property
    def without_data(self) -> Self:
        """A copy without the file."""
        return self.model_copy(update={"data": None})

    def with_options(self, options: MediaOptions) -> Self:
        """Returns a copy with those options that apply to its modality."""
        return self


class Image(MediaFile):
    """An image of a request."""

    modality: ClassVar[Modality] = "image"
    plural: ClassVar[str] = "images"
    width: Annotated[int, Ge(1)]
    """The width in pixels, from the file's header."""
    height: Annotated[int, Ge(1)]
    """The height in pixels, from the file's header."""

    @property
    def size(self) -> InputSize:
        """The size as an input of an encoder. Models with other patches need more or fewer tokens."""
        pixels = min(self.width * self.height, self.options.max_pixels or sys.maxsize)
        return InputSize(media=ceil(pixels / PIXELS_PER_TOKEN))

    def with_options(self, options: MediaOptions) -> Self:
        return self.model_copy(update={"options": MediaOptions.model_validate(options.sizes)})


class Audio(MediaFile):
    """Audio of a request."""

    modality: ClassVar[Modality] = "audio"
    plural: ClassVar[str] = "audio"
    sample_rate: Annotated[int, Ge(1)]
    """Samples per second and channel."""
    channels: Annotated[int, Ge(1)]
    """The number of channels."""
    seconds: Annotated[float, Gt(0)]
    """The duration, from the file's headers. The file contains no more samples than this."""
    of_video: bool = False
    """Whether this is the sound of the video before it, which has the same file. See
    `MediaProcessing.use_audio_in_video`."""

    @property
    def size(self) -> InputSize:
        """The size as an input of an encoder. Models with other features need more or fewer tokens."""
        return InputSize(media=ceil(self.seconds * AUDIO_TOKENS_PER_SECOND))


class Video(MediaFile):
    """A video of a request, without its sound."""

    modality: ClassVar[Modality] = "video"
    plural: ClassVar[str] = "videos"
    width: Annotated[int, Ge(1)]
    """The width of a frame in pixels before its rotation, from the file's header."""
    height: Annotated[int, Ge(1)]
    """The height of a frame in pixels before its rotation, from the file's header."""
    frames: Annotated[int, Ge(1)]
    """The number of frames. The file contains no more than this."""
    seconds: Annotated[float, Gt(0)]
    """The duration, from the file's headers."""
    rotation: Literal[0, 90, 180, 270] = 0
    """The degrees by which players turn the frames clockwise."""

    @property
    def size(self) -> InputSize:
        """The size as an input of an encoder. Models that sample other frames need more or fewer tokens."""
        wanted = ceil(self.seconds * (self.options.fps or VIDEO_FRAMES_PER_SECOND))
        limits = [limit for limit in (self.options.num_frames, self.options.max_frames) if limit and limit > 0]
        sampled = min(self.frames, wanted, *limits)
        tokens_per_frame = self.width * self.height / PIXELS_PER_TOKEN
        return InputSize(media=ceil(ceil(sampled / VIDEO_FRAMES_PER_TOKEN) * tokens_per_frame))

    def with_options(self, options: MediaOptions) -> Self:
        return self.model_copy(update={"options": options})


Media = Image | Audio | Video
"""A medium of a request."""


class MediaPart(BaseModel):
    """A medium in a message. The gateway creates it from a part with a URL or base64; clients cannot send it."""

    model_config = STRICT | ConfigDict(frozen=True)

    type: Literal["media"]
    media: Media
    """The medium."""
    embedding: Tensor | None = None
    """The embeddings of an `EncoderTask`. If None, the language model encodes the medium."""


class MediaTensor(BaseModel):
    """A small tensor."""

    model_config = STRICT | ConfigDict(frozen=True)

    dtype: str
    """torch's name, such as int64."""
    shape: list[int]
    values: list[int] | list[float]
    """The elements, row by row. Booleans are 0 and 1."""


MediaField = int | float | list[int] | list[float] | MediaTensor
"""An input of a language model that describes a medium. JSON keeps the difference between 2 and 2.0."""


MAX_RUN_TOKENS: Final = 1 << 20


class PromptUpdate(BaseModel):
    """The tokens that replace the marker of a medium in a prompt, determined by vLLM's processor of the model."""

    model_config = STRICT | ConfigDict(frozen=True)

    mode: Literal["insert", "replace"]
    """Whether the target stays before the tokens, or is replaced by them."""
    target: list[int] | None
    """Tokens of the rendered chat. None: the processor of the language model determines the place."""
    tokens: list[int | tuple[int, Annotated[int, Ge(2), Le(MAX_RUN_TOKENS)]]]
    """A pair is a run of equal tokens: the token, and its number."""
    embedded: list[int] | None
    """The lengths of runs of tokens that embeddings do not replace and replace, in turn. None: they replace all."""


class PromptUpdates(BaseModel):
    """The changes of a prompt for one medium."""

    model_config = STRICT | ConfigDict(frozen=True)

    vllm_version: str
    """The version of vLLM that has determined them."""
    updates: list[PromptUpdate]


class EncodedMedia(BaseModel):
    """Metadata of the embeddings of a medium: a tensor with a row for each placeholder token."""

    model_config = STRICT | ConfigDict(frozen=True)

    key: str
    """Identifies the contents: equal keys imply equal tensors. Derived from the file, the weights and the settings."""
    rows: Annotated[int, Ge(1)]
    """The number of embeddings. Each replaces one placeholder token of the prompt."""
    fields: Mapping[str, MediaField]
    """Further inputs of the language model, under vLLM's names. Example: `image_grid_thw` is [t, h, w]
    in patches."""
    prompt: PromptUpdates
