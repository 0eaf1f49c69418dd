"""The result of a run, as `--json` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from statistics import median
from typing import Literal, Self

from pydantic import BaseModel

from cornserve.bench.load_generator import LoadGenerator
from cornserve.bench.percentiles import Percentiles
from cornserve.bench.settings import BenchSettings
from cornserve.bench.slo import Slo
from cornserve.bench.statistics import CONTENTS, Contents, RequestSample, RunStatistics
from cornserve_tasklib.media import Modality

MAX_GENERATOR_CPU = 0.85
"""The share of one core above which the generator counts as the bottleneck."""

MAX_LATE_MS = 20.0
"""The delay (p99) of sent requests above which the generator counts as the bottleneck."""


class RequestCounts(BaseModel):
    offered: int
    """The requests that were due: those that were sent, and those that an interruption prevented."""
    sent: int
    answered: int
    failed: int
    unfinished: int
    """Requests in flight when the run was interrupted."""


class Goodput(BaseModel):
    slo: dict[str, float]
    """Upper bounds in seconds."""
    met: int
    share: float
    """The share of the requests that responded or failed. Failed requests do not meet the SLO."""
    requests_per_second: float


class GeneratorStats(BaseModel):
    """Whether the generator could send all requests in time."""

    cpu: float
    """The share of one core that it used."""
    late_ms: Percentiles | None
    """Delays between arrival times and the sending of requests."""
    was_the_limit: bool


class ModalityResult(BaseModel):
    """The requests with media of one modality, possibly next to others, or those without media."""

    answered: int
    failed: int
    media: int
    """The media of this modality in the answered requests. 0 for requests without media."""
    ttft_ms: Percentiles | None
    e2e_ms: Percentiles | None


class AudioResult(BaseModel):
    """The speech of the responses."""

    seconds: float
    """The duration of all speech."""
    ttfa_ms: Percentiles | None
    """The times to the first audio."""
    real_time_factor: float
    """The median of the latencies, each divided by the duration of the response's speech."""


class RunNoise(BaseModel):
    """The differences between two equal loads on one server (A/A), relative to their mean.

    A difference between two servers that is not larger shows nothing.
    """

    requests_per_second: float
    ttft_p50: float | None
    tpot_p50: float | None
    e2e_p50: float | None
    e2e_p99: float | None


class RequestResult(BaseModel):
    """One request with a response. Times are in seconds; `due` is the arrival time since the start."""

    due: float
    latency: float
    ttft: float | None
    tpot: float | None
    ttfa: float | None
    audio_seconds: float
    tokens: int
    media: dict[Modality, int]
    """The number of media in the request, by modality."""

    @classmethod
    def from_sample(cls, sample: RequestSample) -> Self:
        return cls(
            due=round(sample.due, 6),
            latency=round(sample.latency, 6),
            ttft=_rounded(sample.ttft),
            tpot=_rounded(sample.tpot),
            ttfa=_rounded(sample.ttfa),
            audio_seconds=round(sample.audio_seconds, 6),
            tokens=sample.tokens,
            media=dict(sample.media),
        )


class BenchResult(BaseModel):
    url: str
    settings: BenchSettings
    seconds: float
    """The duration from the first arrival to the last response."""
    interrupted: bool
    requests: RequestCounts
    errors: dict[str, int]
    """The number of failed requests by kind: status and error code."""
    requests_per_second: float
    """Counts requests with a response."""
    output_tokens_per_second: float
    prompt_tokens: int
    output_tokens: int
    tokens_are: Literal["tokens", "pieces"]
    """The value "pieces" means chunks of streams, if the server does not report the number of tokens."""
    ttft_ms: Percentiles | None
    tbt_ms: Percentiles | None
    tpot_ms: Percentiles | None
    e2e_ms: Percentiles | None
    audio: AudioResult | None
    """None without speech."""
    modalities: dict[Contents, ModalityResult]
    """The results by modality of the media in the requests, and "text" for requests without media."""
    goodput: Goodput | None
    noise: RunNoise | None = None
    """None if the load was run once."""
    generator: GeneratorStats
    samples: list[RequestResult]

    @classmethod
    def from_run(cls, load: LoadGenerator, settings: BenchSettings, url: str) -> Self:
        statistics, samples = load.statistics, load.statistics.samples
        late = Percentiles.from_seconds(statistics.late)
        is_busy = load.cpu > MAX_GENERATOR_CPU or (late is not None and late.p99 > MAX_LATE_MS)
        counts = RequestCounts(
            offered=statistics.sent + statistics.unsent,
            sent=statistics.sent,
            answered=len(samples),
            failed=statistics.failed,
            unfinished=statistics.unfinished,
        )
        return cls(
            url=url,
            settings=settings,
            seconds=round(load.seconds, 3),
            interrupted=load.is_stopped,
            requests=counts,
            errors=dict(statistics.errors.most_common()),
            requests_per_second=round(len(samples) / load.seconds, 3),
            output_tokens_per_second=round(statistics.tokens / load.seconds, 3),
            prompt_tokens=sum(sample.prompt_tokens for sample in samples),
            output_tokens=statistics.tokens,
            tokens_are="pieces" if any(sample.output_tokens is None for sample in samples) else "tokens",
            ttft_ms=Percentiles.from_seconds(sample.ttft for sample in samples if sample.ttft is not None),
            tbt_ms=Percentiles.from_seconds(chain.from_iterable(sample.gaps for sample in samples)),
            tpot_ms=Percentiles.from_seconds(sample.tpot for sample in samples if sample.tpot is not None),
            e2e_ms=Percentiles.from_seconds(sample.latency for sample in samples),
            audio=_audio(samples),
            modalities=_by_modality(statistics),
            goodput=None if settings.bounds is None else _goodput(settings.bounds, samples, counts, load.seconds),
            generator=GeneratorStats(cpu=round(load.cpu, 3), late_ms=late, was_the_limit=is_busy),
            samples=[RequestResult.from_sample(sample) for sample in samples],
        )


def compare_runs(first: BenchResult, second: BenchResult) -> RunNoise:
    """Returns the differences between two equal loads."""

    def between(name: str, percentile: str) -> float | None:
        found: list[Percentiles | None] = [getattr(result, name) for result in (first, second)]
        values = [getattr(each, percentile) for each in found if each is not None]
        return _relative(*values) if len(values) == 2 else None

    return RunNoise(
        requests_per_second=_relative(first.requests_per_second, second.requests_per_second),
        ttft_p50=between("ttft_ms", "p50"),
        tpot_p50=between("tpot_ms", "p50"),
        e2e_p50=between("e2e_ms", "p50"),
        e2e_p99=between("e2e_ms", "p99"),
    )


def _relative(first: float, second: float) -> float:
    mean = (first + second) / 2
    return round(abs(first - second) / mean, 4) if mean else 0.0


def _audio(samples: Sequence[RequestSample]) -> AudioResult | None:
    factors = [factor for sample in samples if (factor := sample.real_time_factor) is not None]
    if not factors:
        return None
    return AudioResult(
        seconds=round(sum(sample.audio_seconds for sample in samples), 3),
        ttfa_ms=Percentiles.from_seconds(sample.ttfa for sample in samples if sample.ttfa is not None),
        real_time_factor=round(median(factors), 4),
    )


def _by_modality(statistics: RunStatistics) -> dict[Contents, ModalityResult]:
    results: dict[Contents, ModalityResult] = {}
    for contents in CONTENTS:
        samples = [sample for sample in statistics.samples if contents in sample.contents]
        failed = statistics.failed_by_contents[contents]
        if samples or failed:
            results[contents] = ModalityResult(
                answered=len(samples),
                failed=failed,
                media=sum(count for sample in samples for name, count in sample.media.items() if name == contents),
                ttft_ms=Percentiles.from_seconds(sample.ttft for sample in samples if sample.ttft is not None),
                e2e_ms=Percentiles.from_seconds(sample.latency for sample in samples),
            )
    return results


def _goodput(slo: Slo, samples: list[RequestSample], counts: RequestCounts, seconds: float) -> Goodput:
    met = sum(slo.is_met(sample) for sample in samples)
    bounds = {name: bound for name, bound in asdict(slo).items() if bound is not None}
    ended = counts.answered + counts.failed
    return Goodput(
        slo=bounds, met=met, share=round(met / max(ended, 1), 4), requests_per_second=round(met / seconds, 3)
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
