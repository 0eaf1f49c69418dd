"""What a run has shown."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import Literal, Self

from pydantic import BaseModel

from cornserve.bench.distribution import Distribution
from cornserve.bench.load import Load
from cornserve.bench.samples import Sample
from cornserve.bench.settings import Settings
from cornserve.bench.slo import Slo

BUSY_CPU = 0.85
"""Of one core. A generator that is so busy measures itself."""

LATE_MS = 20.0


class Counts(BaseModel):
    sent: int
    answered: int
    failed: int
    unfinished: int
    """In flight when the run was interrupted."""


class Goodput(BaseModel):
    slo: dict[str, float]
    """Upper bounds in seconds."""
    met: int
    share: float
    """Of all requests that were sent: those that failed are not good."""
    requests_per_second: float


class Generator(BaseModel):
    """Whether it could send as it was told."""

    cpu: float
    """The part of one core that it used."""
    late_ms: Distribution | None
    """How much later than due requests were sent."""
    was_the_limit: bool


class Seen(BaseModel):
    """One answered request, in seconds since the start."""

    due: float
    latency: float
    ttft: float | None
    tpot: float | None
    tokens: int

    @classmethod
    def of(cls, sample: Sample) -> Self:
        return cls(
            due=round(sample.due, 6),
            latency=round(sample.latency, 6),
            ttft=_rounded(sample.ttft),
            tpot=_rounded(sample.tpot),
            tokens=sample.tokens,
        )


class Result(BaseModel):
    url: str
    settings: Settings
    seconds: float
    """From the first request that was due to the last answer."""
    interrupted: bool
    requests: Counts
    errors: dict[str, int]
    """How many failed, by kind: the status and the error's code."""
    requests_per_second: float
    """Answered ones."""
    output_tokens_per_second: float
    prompt_tokens: int
    output_tokens: int
    tokens_are: Literal["tokens", "pieces"]
    """Pieces of streams, where the server does not say how many tokens they are."""
    ttft_ms: Distribution | None
    tbt_ms: Distribution | None
    tpot_ms: Distribution | None
    e2e_ms: Distribution | None
    goodput: Goodput | None
    generator: Generator
    samples: list[Seen]

    @classmethod
    def of(cls, load: Load, settings: Settings, url: str) -> Self:
        tally, samples = load.tally, load.tally.samples
        late = Distribution.of(tally.late)
        is_busy = load.cpu > BUSY_CPU or (late is not None and late.p99 > LATE_MS)
        counts = Counts(sent=tally.sent, answered=len(samples), failed=tally.failed, unfinished=tally.unfinished)
        return cls(
            url=url,
            settings=settings,
            seconds=round(load.seconds, 3),
            interrupted=load.is_stopped,
            requests=counts,
            errors=dict(tally.errors.most_common()),
            requests_per_second=round(len(samples) / load.seconds, 3),
            output_tokens_per_second=round(tally.tokens / load.seconds, 3),
            prompt_tokens=sum(sample.prompt_tokens for sample in samples),
            output_tokens=tally.tokens,
            tokens_are="pieces" if any(sample.output_tokens is None for sample in samples) else "tokens",
            ttft_ms=Distribution.of(sample.ttft for sample in samples if sample.ttft is not None),
            tbt_ms=Distribution.of(chain.from_iterable(sample.gaps for sample in samples)),
            tpot_ms=Distribution.of(sample.tpot for sample in samples if sample.tpot is not None),
            e2e_ms=Distribution.of(sample.latency for sample in samples),
            goodput=None if settings.bounds is None else _goodput(settings.bounds, samples, counts, load.seconds),
            generator=Generator(cpu=round(load.cpu, 3), late_ms=late, was_the_limit=is_busy),
            samples=[Seen.of(sample) for sample in samples],
        )


def _goodput(slo: Slo, samples: list[Sample], counts: Counts, seconds: float) -> Goodput:
    met = sum(slo.is_met(sample) for sample in samples)
    bounds = {name: bound for name, bound in asdict(slo).items() if bound is not None}
    ended = counts.answered + counts.failed
    return Goodput(
        slo=bounds, met=met, share=round(met / max(ended, 1), 4), requests_per_second=round(met / seconds, 3)
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
