"""Generates requests from ServeGen's client profiles: separate arrivals for each client, and independent sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cornserve_planner.errors import InvalidInputError, require_between, require_positive
from cornserve_planner.requests.request import WorkloadImage, WorkloadRequest
from cornserve_planner.workload.clients import ClientPool, ClientProfile, window_index
from cornserve_planner.workload.interarrival import Rng, draw_arrivals
from cornserve_planner.workload.rate_curve import RateCurve

MAX_SECONDS = 7 * 24 * 3600
MAX_REQUESTS = 10_000_000
"""The requests of a workload are in memory."""


def generate_requests(
    pool: ClientPool, seconds: float, *, rate: float | RateCurve | None = None, start: float = 0, seed: int = 0
) -> list[WorkloadRequest]:
    """Returns requests in order of arrival.

    Args:
        rate: requests per second of all clients together. Each client keeps its share at every moment. None for the
            recorded rates.
        start: the second of the pool's day at which the workload starts.

    Raises `InvalidInputError` for times longer than a week, and more than `MAX_REQUESTS`.
    """
    require_positive("seconds", seconds)
    require_between("seconds", seconds, 0, MAX_SECONDS)
    require_between("start", start, -MAX_SECONDS, MAX_SECONDS)
    target = RateCurve(pool.step_seconds, (rate,)) if isinstance(rate, (int, float)) else rate
    expected = (target or pool.rate).mean * seconds
    if expected > MAX_REQUESTS:
        raise InvalidInputError(
            "rate", f"{expected:.3g} requests are more than {MAX_REQUESTS}: lower it, or the seconds"
        )
    generators = np.random.default_rng(seed).spawn(len(pool.clients))
    found = [
        request
        for client, rng in zip(pool.clients, generators, strict=True)
        for request in _client_requests(client, pool, seconds, target, start, rng)
    ]
    return sorted(found, key=lambda request: request.arrival)


def _client_requests(
    client: ClientProfile, pool: ClientPool, seconds: float, target: RateCurve | None, start: float, rng: Rng
) -> Iterator[WorkloadRequest]:
    step = min(pool.step_seconds, target.step if target else math.inf)
    moments = [index * step for index in range(math.ceil(seconds / step))]
    recorded = [int((start + moment) // pool.step_seconds) for moment in moments]
    rates = [client.rates[index % len(client.rates)] for index in recorded]
    if target is not None:
        whole = pool.rate
        rates = [
            rate * target.at(moment) / total if (total := whole.at(start + moment)) else 0.0
            for rate, moment in zip(rates, moments, strict=True)
        ]
    times = draw_arrivals(RateCurve(step, tuple(rates)), map(client.gaps, recorded), rng)
    times = times[: np.searchsorted(times, seconds)]
    windows = (times + start) // pool.window_seconds
    for window in np.unique(windows):
        sizes = client.windows[window_index(pool, client, float(window) * pool.window_seconds)]
        in_window = times[windows == window]
        texts, outputs = sizes.text.draw(len(in_window), rng), sizes.output.draw(len(in_window), rng)
        images = sizes.images.draw(len(in_window), rng)
        tokens = iter(sizes.image_tokens.draw(int(images.sum()), rng).tolist())
        yield from _requests(client.name, in_window, texts, images, tokens, outputs)


def _requests(
    client: str, times: Any, texts: Any, images: Any, tokens: Iterator[int], outputs: Any
) -> Iterator[WorkloadRequest]:
    columns = (times.tolist(), texts.tolist(), images.tolist(), outputs.tolist())
    for arrival, text, count, output in zip(*columns, strict=True):
        yield WorkloadRequest(
            arrival=arrival,
            client=client,
            text_tokens=text,
            images=tuple(WorkloadImage(tokens=max(1, next(tokens))) for _ in range(count)),
            output_tokens=output,
        )
