"""The results of measurements, as the store keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from annotated_types import Ge, Gt
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from cornserve.bench.percentiles import percentile
from cornserve.task.spec import ExecutorSpec

Positive = Annotated[float, Gt(0)]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasuredLoad(_Result):
    """A load and its latencies in seconds.

    Args:
        rate: requests per second and replica.
        seconds: mean latency; `p50` and `p99` are percentiles.
        requests: the number of completed requests.
    """

    rate: Positive
    seconds: Positive
    p50: Positive
    p99: Positive
    requests: int


class LoadLevel(MeasuredLoad):
    """A closed loop with a number of requests in flight.

    Args:
        concurrency: requests in flight per replica.
        standard_error: relative standard error of the rate, and of the mean latency: by Little's law, their product is
            the number of requests in flight.
    """

    concurrency: Annotated[int, Ge(1)]
    standard_error: Annotated[float, Ge(0)]


class PoissonLoad(MeasuredLoad):
    """Poisson arrivals, with their rate."""


class MixShare(_Result):
    """Requests of a mix for which the option runs the same components."""

    components: tuple[str, ...]
    share: Positive


def describe_mix(mix: Sequence[MixShare]) -> str:
    """Returns the components of each share, with the sizes of the shares if there are several, for users."""
    return ", ".join("+".join(entry.components) + (f" {entry.share:.0%}" if len(mix) > 1 else "") for entry in mix)


class MeasuredTokens(_Result):
    """The mean tokens of the requests of a measurement by a language model, and the limits of its engine."""

    prompt: Positive
    generated: Positive
    cache_tokens: Annotated[int, Ge(1)]
    block_size: Annotated[int, Ge(1)]
    max_num_seqs: Annotated[int, Ge(1)]
    max_num_batched_tokens: Annotated[int, Ge(1)]


class MixMeasurement(_Result):
    """The measurement of an option with one mix of requests.

    Args:
        requests: a digest of the requests.
        rate: requests per second and replica at the level with the most requests in flight that may have the
            highest rate.
        standard_error: relative standard error of the rate.
        replicas: the replicas that were measured together.
        is_saturated: whether more requests in flight did not increase the rate. Otherwise, the rate is a lower bound.
        tokens: None if the option runs no language model.
    """

    mix: tuple[MixShare, ...] = Field(min_length=1)
    requests: str
    rate: Positive
    standard_error: Annotated[float, Ge(0)]
    replicas: Annotated[int, Ge(1)]
    is_saturated: bool
    levels: tuple[LoadLevel, ...]
    poisson: PoissonLoad | None
    date: str
    tokens: MeasuredTokens | None = None

    @property
    def load_seconds(self) -> float:
        """The time of the loads with set numbers of requests in flight."""
        return sum(level.requests / (level.rate * self.replicas) for level in self.levels)

    @property
    def quality(self) -> tuple[bool, float]:
        """The order of measurements of the same requests: higher is better."""
        return self.is_saturated, -self.standard_error


class Conditions(_Result):
    """The conditions of a measurement, besides the option.

    Args:
        model: a digest of the files of the model's directory, or its revision; empty without a model.
        versions: versions of packages, by name, and in a cluster the executor's `image`.
        device: the type of its slots or GPUs.
        hardware: the name of the GPU or the processor, and the number of cores.
        driver: the version of the GPU driver or, without GPUs, of the kernel.
    """

    model: str
    versions: dict[str, str]
    device: str
    hardware: str
    driver: str

    def changes_since(self, earlier: Conditions) -> list[str]:
        """Returns what differs, for users."""
        found = []
        for name in ("model", "device", "hardware", "driver"):
            before, now = getattr(earlier, name), getattr(self, name)
            if before != now:
                found.append(f"{name} was {before or 'unset'}, is {now or 'unset'}")
        for package in sorted(self.versions.keys() | earlier.versions.keys()):
            before, now = earlier.versions.get(package, "absent"), self.versions.get(package, "absent")
            if before != now:
                found.append(f"{package} was {before}, is {now}")
        return found


class MemoryUse(_Result):
    """Bytes of the processes of a replica: after its last start, and the highest value that was seen.

    The memory of GPUs does not count.
    """

    started: int
    peak: int


class StartSummary(NamedTuple):
    """Seconds of starts: their number, median and 95th percentile."""

    starts: int
    median: float
    p95: float

    @classmethod
    def of(cls, startup: Sequence[float]) -> StartSummary:
        """Summarizes at least one start."""
        ordered = sorted(startup)
        return cls(len(ordered), percentile(ordered, 50), percentile(ordered, 95))

    def __str__(self) -> str:
        return f"{self.median:.1f} s (median of {self.starts}, p95 {self.p95:.1f} s)"


class OptionResults(_Result):
    """All measurements of one deployment option on one device.

    Args:
        spec: the executor of the option.
        startup: seconds from each start to the first request that could be served, also of measurements that failed.
    """

    version: Literal[3] = 3
    task: str
    settings: dict[str, JsonValue]
    spec: ExecutorSpec
    conditions: Conditions
    startup: tuple[float, ...] = ()
    memory: MemoryUse | None = None
    measurements: tuple[MixMeasurement, ...] = ()

    def find(self, mix: tuple[MixShare, ...], requests: str, standard_error: float) -> MixMeasurement | None:
        """Returns the saturated measurement of a mix with at most this relative standard error."""
        return next(
            (
                found
                for found in self.measurements
                if (found.mix, found.requests) == (mix, requests)
                and found.is_saturated
                and found.standard_error <= standard_error
            ),
            None,
        )

    def with_start(self, seconds: float) -> OptionResults:
        return self.model_copy(update={"startup": (*self.startup, seconds)})

    def with_memory(self, use: MemoryUse | None) -> OptionResults:
        """Returns the results with the memory of another replica, or unchanged if it is unknown."""
        if use is None:
            return self
        peak = use.peak if self.memory is None else max(use.peak, self.memory.peak)
        return self.model_copy(update={"memory": MemoryUse(started=use.started, peak=peak)})

    def with_measurement(self, measurement: MixMeasurement) -> OptionResults:
        """Returns the results with this measurement, unless an earlier one of the same mix and requests is better.

        A saturated measurement is better, or else a narrower one.
        """
        key = (measurement.mix, measurement.requests)
        earlier = [found for found in self.measurements if (found.mix, found.requests) == key]
        if any(found.quality > measurement.quality for found in earlier):
            return self
        others = (found for found in self.measurements if found not in earlier)
        return self.model_copy(update={"measurements": (*others, measurement)})
