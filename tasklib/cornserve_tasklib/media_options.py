"""Options of the frames and of the size in which a model receives media, with vLLM's names."""

from __future__ import annotations

from typing import Annotated, Any, Self

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator

from cornserve_tasklib.sampling_fields import STRICT

MAX_FRAMES = 768
"""The largest number of frames that vLLM's loaders for Qwen's models sample."""

MAX_FPS = 30
"""The largest rate at which these loaders sample."""

Pixels = Annotated[int, Ge(1), Le(2**31 - 1)]
Tiles = Annotated[int, Ge(1), Le(1024)]


def _opposite(name: str) -> str:
    """Returns the name of the largest number for that of the smallest one, and the reverse."""
    return name.replace("min_", "max_") if name.startswith("min_") else name.replace("max_", "min_")


class _Limits(BaseModel):
    """Options of which some are the smallest and the largest number of something."""

    model_config = STRICT | ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        for name in type(self).model_fields:
            if not name.startswith("min_"):
                continue
            smallest, largest = getattr(self, name), getattr(self, _opposite(name))
            if smallest is not None and largest is not None and smallest > largest:
                raise ValueError(f"{name}: {smallest} is above {_opposite(name)}: {largest}")
        return self


class FrameOptions(_Limits):
    """The frames that are sampled from a video. A model takes `num_frames`, or `min_frames` and `max_frames`."""

    fps: Annotated[float, Gt(0), Le(MAX_FPS)] | None = None
    """Frames per second."""
    num_frames: Annotated[int, Ge(-1), Le(MAX_FRAMES)] | None = None
    """The largest number of frames. -1: all frames."""
    min_frames: Annotated[int, Ge(2), Le(MAX_FRAMES)] | None = None
    """The smallest number of frames, if the video has them."""
    max_frames: Annotated[int, Ge(2), Le(MAX_FRAMES)] | None = None
    """The largest number of frames."""

    @field_validator("num_frames")
    @classmethod
    def _check_number(cls, number: int | None) -> int | None:
        if number == 0:
            raise ValueError("must be -1, for all frames, or at least 1, not 0")
        return number

    @property
    def frames(self) -> dict[str, float | int]:
        """The options that are set, by name."""
        return _given(FrameOptions, self)


class PixelOptions(_Limits):
    """Limits on the pixels to which a model resizes an image or a frame; for Qwen3-VL, all frames of a video."""

    min_pixels: Pixels | None = None
    """The smallest number of pixels."""
    max_pixels: Pixels | None = None
    """The largest number of pixels, up to the model's own."""

    @property
    def pixels(self) -> dict[str, int]:
        """The options that are set, by name."""
        return _given(PixelOptions, self)


class TileOptions(_Limits):
    """Limits on the tiles into which a model splits an image. A thumbnail is not counted."""

    min_patches: Tiles | None = None
    """The smallest number of tiles."""
    max_patches: Tiles | None = None
    """The largest number of tiles, up to the model's own."""

    @property
    def tiles(self) -> dict[str, int]:
        """The options that are set, by name."""
        return _given(TileOptions, self)


class SizeOptions(PixelOptions, TileOptions):
    """The size in which a model receives an image or a frame. A model has either limits on pixels or on tiles."""

    @property
    def sizes(self) -> dict[str, int]:
        """The options that are set, by name."""
        return {**self.pixels, **self.tiles}


class MediaOptions(FrameOptions, SizeOptions):
    """The options of one medium. Those of frames are for videos only."""

    @classmethod
    def of_arguments(cls, loading: MediaLoading | None, processing: MediaProcessing | None) -> MediaOptions:
        """Returns the options in vLLM's arguments of loaders and of the processor."""
        frames = {} if loading is None else loading.video.frames
        sizes = {} if processing is None else processing.sizes
        return cls.model_validate(frames | sizes)

    @property
    def key(self) -> str:
        """Identifies the options: empty if none is set."""
        return ",".join(f"{name}={value}" for name, value in self.given.items())

    @property
    def given(self) -> dict[str, float | int]:
        """The options that are set, by name."""
        return {**self.frames, **self.sizes}

    def with_defaults(self, defaults: MediaOptions) -> MediaOptions:
        """Returns these options, and the defaults of those that are not set.

        A default is not used next to an option that it contradicts, nor, as in vLLM, one of `fps` and `num_frames` next
        to the other.
        """
        given = self.given
        used = {name: value for name, value in defaults.given.items() if not self._replaces(name, value)}
        return MediaOptions.model_validate(used | given)

    def _replaces(self, name: str, default: float) -> bool:
        match name:
            case "fps":
                return self.num_frames is not None
            case "num_frames":
                return self.fps is not None
            case _ if name.startswith("min_"):
                limit = self.given.get(_opposite(name))
                return limit is not None and default > limit
            case _:
                limit = self.given.get(_opposite(name))
                return limit is not None and default < limit


class MediaLoading(BaseModel):
    """Arguments of the loaders of media, by modality."""

    model_config = STRICT | ConfigDict(frozen=True)

    video: Annotated[FrameOptions, BeforeValidator(lambda given: {} if given is None else given)] = FrameOptions()
    """The frames of videos."""


class MediaProcessing(SizeOptions):
    """Arguments of the model's processor."""

    use_audio_in_video: Annotated[bool, BeforeValidator(lambda given: False if given is None else given)] = False
    """Whether the model receives the sound of videos. Each video must have sound, and the chat no other audio. Only
    for Qwen2.5-Omni and Qwen3-Omni."""


def _given(kind: type[BaseModel], options: BaseModel) -> dict[str, Any]:
    return {name: value for name in kind.model_fields if (value := getattr(options, name)) is not None}
