"""The file that contains the performance of a model's deployment options."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cornserve_plan.plan import SHARES_TOLERANCE
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Components, ExecutorTask, Name
from cornserve_planner.profiles.sourced_value import Duration, Rate, Size, Tag
from cornserve_planner.requests.request_sizes import RequestSizes

Share = Annotated[float, Field(gt=0, le=1)]

MAX_STARTS = 1000
"""The most start-up times of an option."""


class MixEntry(DocumentPart):
    """Requests of a mix that need the same components of the model. `sizes`: their mean sizes."""

    components: Components
    share: Share
    sizes: RequestSizes = Field(default={})


class Throughput(DocumentPart):
    """The maximum throughput of one replica.

    Args:
        rate: requests of the mix per second, including requests that skip the option [C App. C].
        mix: the mix of the measurement. If empty, every request needed all components of the option.
        sizes: the mean sizes of the requests, without a mix.
        requests: a text that describes their sizes.
        error: relative standard error of the rate, as in 0.05; None for the default of its tag.
    """

    rate: Rate
    error: Annotated[float, Field(gt=0, le=2)] | None = None
    mix: tuple[MixEntry, ...] = ()
    sizes: RequestSizes = Field(default={})
    requests: str = ""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.mix and self.sizes:
            raise ValueError("sizes: the measurement has a mix: state the sizes in each entry of the mix")
        total = math.fsum(entry.share for entry in self.mix)
        if self.mix and abs(total - 1) > SHARES_TOLERANCE:
            raise ValueError(f"mix: the shares add up to {total:.6g}, not to 1: correct them")
        return self


class BatchLatency(DocumentPart):
    """The latency of batches, by ascending batch size.

    Args:
        measures: seconds of a complete request, until its first token, or between two of its tokens.
        error: relative standard errors of the seconds, one for each batch size; empty if they are unknown.
    """

    measures: Literal["request", "first_token", "between_tokens"] = "request"
    batch: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    seconds: tuple[Annotated[float, Field(gt=0)], ...]
    error: tuple[Annotated[float, Field(gt=0)], ...] = ()
    requests: str = ""
    tag: Tag
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _check_curve(self) -> Self:
        if len(self.batch) != len(self.seconds):
            raise ValueError(
                f"has {len(self.batch)} batch sizes and {len(self.seconds)} durations: give one duration for each size"
            )
        if self.error and len(self.error) != len(self.batch):
            raise ValueError(f"has {len(self.batch)} batch sizes and {len(self.error)} errors: give one for each size")
        if list(self.batch) != sorted(set(self.batch)):
            raise ValueError(f"batch: the sizes {list(self.batch)} do not ascend: sort them and remove duplicates")
        return self

    def at(self, batch: int) -> float:
        """Returns the seconds of a batch, interpolated between two sizes or extrapolated from the two largest."""
        if batch < self.batch[0] or (batch > self.batch[-1] and len(self.batch) == 1):
            raise InvalidInputError("batch", f"{batch} is outside the measured batch sizes {self.batch}: measure it")
        upper = next((index for index, size in enumerate(self.batch) if size >= batch), len(self.batch) - 1)
        if self.batch[upper] == batch:
            return self.seconds[upper]
        below, above = self.batch[upper - 1], self.batch[upper]
        slope = (self.seconds[upper] - self.seconds[upper - 1]) / (above - below)
        return self.seconds[upper - 1] + slope * (batch - below)


class StepSeconds(DocumentPart):
    """The seconds of a step of a language model's engine, and the limits of a step, with vLLM's names.

    A step takes `fixed + max(weights, per_token * tokens) + per_sequence * sequences + per_context_token * context`
    seconds.

    Args:
        per_media_token: seconds to encode a token of media, for options that run an encoder.
        cache_tokens: tokens whose keys and values a replica holds, in blocks of `block_size`.
    """

    fixed: Annotated[float, Field(ge=0)]
    weights: Annotated[float, Field(ge=0)] = 0.0
    per_token: Annotated[float, Field(ge=0)] = 0.0
    per_media_token: Annotated[float, Field(ge=0)] = 0.0
    per_sequence: Annotated[float, Field(ge=0)] = 0.0
    per_context_token: Annotated[float, Field(ge=0)] = 0.0
    max_num_seqs: Annotated[int, Field(ge=1)] = 256
    max_num_batched_tokens: Annotated[int, Field(ge=2)] = 8192
    cache_tokens: Annotated[int, Field(ge=1)]
    block_size: Annotated[int, Field(ge=1, le=1024)] = 16
    tag: Tag
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _check_step(self) -> Self:
        if not self.fixed + self.weights:
            raise ValueError("fixed, weights: are both 0: a step takes time")
        if self.per_media_token and not self.per_token:
            raise ValueError("per_token: is 0, but media take time: a token of a prompt takes time, too")
        if self.max_num_batched_tokens <= self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens: is {self.max_num_batched_tokens}, not above max_num_seqs, {self.max_num_seqs}"
            )
        if self.cache_tokens < self.block_size:
            raise ValueError(f"cache_tokens: are {self.cache_tokens}, less than a block of {self.block_size}")
        return self


class MeasuredWith(DocumentPart):
    """The conditions under which an option was measured.

    Args:
        model: revision of the model, or a digest of its files; empty without a model.
        versions: versions of packages, by name.
        hardware: name of the GPU or the processor. `driver`: version of its driver, or of the kernel.
        date: date of the last measurement.
    """

    model: str = ""
    versions: dict[Name, str]
    hardware: str
    driver: str
    date: str


class OptionProfile(DocumentPart):
    """The performance of a deployment option on one GPU type.

    Args:
        executor: the measured executor. The option of the model must have the same one.
        gpus: GPUs of a replica. More than one means tensor parallelism, unless the source states otherwise.
        weights: bytes of the weights on all GPUs of a replica together.
        cache_per_request: bytes that a request in flight needs: keys and values, or an encoder's outputs.
        startup: seconds until a replica accepts requests; `startup_cached` with cached compiled kernels.
        startup_times: the seconds of each measured start, of which simulations draw.
        step: the seconds of a step of a language model, an encoder, or both. Simulations and plans for goodput use it.
    """

    option: Name
    gpu: Name
    gpus: Annotated[int, Field(ge=1)] = 1
    executor: ExecutorTask | None = None
    measured_with: MeasuredWith | None = None
    throughput: tuple[Throughput, ...] = ()
    weights: Size | None = None
    cache_per_request: Size | None = None
    startup: Duration | None = None
    startup_cached: Duration | None = None
    startup_times: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(max_length=MAX_STARTS)] = ()
    latency: tuple[BatchLatency, ...] = ()
    step: StepSeconds | None = None


class ModelProfile(Document):
    """`format: cornserve-planner/profile`."""

    kind = "profile"

    model: Name
    note: str = ""
    options: tuple[OptionProfile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_duplicates(self) -> Self:
        seen: set[tuple[str, str, int]] = set()
        for profile in self.options:
            key = (profile.option, profile.gpu, profile.gpus)
            if key in seen:
                raise ValueError(
                    f"options: {profile.option} on {profile.gpus} {profile.gpu} is given twice: remove one of them"
                )
            seen.add(key)
        return self

    @classmethod
    def shipped(cls, model: str) -> Self:
        """Returns the published profile of a model. Raises `InvalidInputError` if none is shipped."""
        if model not in set(shipped_profiles()):
            raise InvalidInputError("profile", f"none is shipped for {model!r}: give a file with --profile")
        return cls.read_shipped(_DATA / f"{model}.json")

    def restricted_to(self, options: Collection[str]) -> Self:
        """Returns the entries of these options, for a model that omits the others."""
        return self.model_copy(update={"options": tuple(entry for entry in self.options if entry.option in options)})

    def for_option(self, option: str, gpu: str | None = None) -> tuple[OptionProfile, ...]:
        return tuple(entry for entry in self.options if entry.option == option and gpu in (None, entry.gpu))


_DATA = files("cornserve_planner.profiles") / "data/models"


def shipped_profiles() -> Iterator[str]:
    """Returns the names of models with a shipped profile."""
    return (entry.name.removesuffix(".json") for entry in _DATA.iterdir() if entry.name.endswith(".json"))
