"""A request for planning purposes: its arrival time and sizes, without content."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cornserve_planner.files.document import DocumentPart

Modality = Literal["text", "image", "video", "audio"]

MOST_PREDECESSORS = 64
"""The most requests that a request can wait for."""

LONGEST_SECONDS = 3e11
"""The latest arrival and the longest delay, 10,000 years: later times have no fractions of milliseconds."""

Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
RequestId = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\s;,]+$")]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]


class _WorkloadMedium(DocumentPart):
    """A medium with its dimensions, or with the number of tokens that the model's encoder produces for it."""

    tokens: Positive | None = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("must have dimensions or tokens")
        return self


class _VisualMedium(_WorkloadMedium):
    width: Positive | None = None
    """The width in pixels."""
    height: Positive | None = None
    """The height in pixels."""

    @model_validator(mode="after")
    def _check_sides(self) -> Self:
        if (self.width is None) != (self.height is None):
            raise ValueError("width and height must be given together")
        return self


class WorkloadImage(_VisualMedium):
    pass


class WorkloadVideo(_VisualMedium):
    seconds: Annotated[float, Field(gt=0)] | None = None
    frames: Positive | None = None
    """Frames after sampling."""


class WorkloadAudio(_WorkloadMedium):
    seconds: Annotated[float, Field(gt=0)] | None = None


class WorkloadRequest(DocumentPart):
    """One line of a file of requests."""

    arrival: Seconds
    """Seconds since the start of the workload. A request with `after` is sent no earlier."""
    id: RequestId | None = None
    """A name, unique in the file, by which later requests refer to this one."""
    after: Annotated[tuple[RequestId, ...], Field(max_length=MOST_PREDECESSORS)] = ()
    """The ids of earlier requests that must have ended, successfully or not, before this one is sent."""
    delay: Seconds = 0.0
    """Seconds between the end of the last request of `after` and this one: the time of a tool, or of a reader."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of the contents. Requests of equal sizes and seeds have equal contents."""
    client: str = ""
    """The client that sends the request. Requests of one client are similar [ServeGen]."""
    text_tokens: Count = 0
    images: tuple[WorkloadImage, ...] = ()
    videos: tuple[WorkloadVideo, ...] = ()
    audios: tuple[WorkloadAudio, ...] = ()
    output_modalities: Annotated[tuple[Modality, ...], Field(min_length=1)] = ("text",)
    output_tokens: Count = 0
    """Text tokens in the response."""
    output_images: tuple[WorkloadImage, ...] = ()
    output_audio_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        if not (self.text_tokens or self.images or self.videos or self.audios):
            raise ValueError("must have an input: text_tokens, images, videos or audios")
        return self

    @model_validator(mode="after")
    def _check_predecessors(self) -> Self:
        if len(set(self.after)) < len(self.after):
            raise ValueError("names a request twice in after")
        if self.delay and not self.after:
            raise ValueError("has a delay, but no request in after")
        return self

    @model_validator(mode="after")
    def _check_output_modalities(self) -> Self:
        for modality, amount in (
            ("image", self.output_images),
            ("audio", self.output_audio_seconds),
            ("text", self.output_tokens),
        ):
            if amount and modality not in self.output_modalities:
                raise ValueError(f"has {modality} output, but output_modalities does not contain it")
        return self

    @property
    def input_modalities(self) -> tuple[Modality, ...]:
        present: dict[Modality, object] = {
            "text": self.text_tokens,
            "image": self.images,
            "video": self.videos,
            "audio": self.audios,
        }
        return tuple(modality for modality, amount in present.items() if amount)
