"""Requests with the sizes of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cornserve.bench.recorded_arrivals import RecordedArrival
from cornserve.bench.requests import RequestError
from cornserve.bench.workload_chats import GeneratedChat
from cornserve.bench.workload_images import GeneratedImages
from cornserve.bench.workload_speech import GeneratedSpeech
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.workload.request_files import read_requests

GeneratedRequest = GeneratedChat | GeneratedImages | GeneratedSpeech

MOST_REQUESTS = 1_000_000
"""The most requests of a run: each needs up to 1 kB of memory."""


@dataclass(frozen=True, slots=True)
class SeededRequest:
    """A request, and the seed of its contents; None for other contents each time."""

    request: GeneratedRequest
    seed: int | None


def generated_requests(path: Path) -> Iterator[GeneratedRequest]:
    """Yields the requests of a planner's file of requests: chats, or requests for images or speech.

    Raises `RequestError` for requests that cannot be generated, and the planner's `InvalidInputError`.
    """
    return (_request(request, path) for request in read_requests(path))


def workload_requests(path: Path, count: int | None = None) -> list[GeneratedRequest]:
    """Returns the first `count` generated requests of a file, or all. Raises the errors of `generated_requests`, and a
    `RequestError` for too many."""
    return [_request(request, path) for request in _first_requests(path, count)]


def recorded_requests(
    path: Path, count: int | None, rate: float | None
) -> tuple[list[SeededRequest], list[RecordedArrival]]:
    """Returns the requests of a file, and their arrivals. The first one arrives at 0.

    Args:
        count: the most requests; None for all.
        rate: requests per second to which the recorded times are scaled; None to keep them.

    Raises:
        RequestError: requests cannot be generated, or the file has too many or no rate.
    """
    requests, arrivals = [], []
    for request in _first_requests(path, count):
        requests.append(SeededRequest(_request(request, path), request.seed))
        arrivals.append(RecordedArrival(request.arrival, request.id, request.after, request.delay))
    return requests, [*_from_zero(arrivals, rate, path)]


def _first_requests(path: Path, count: int | None) -> Iterator[WorkloadRequest]:
    """Yields the first `count` requests of a file, or all. Raises `RequestError` for more than `MOST_REQUESTS`."""
    for number, request in enumerate(islice(read_requests(path), count)):
        if number == MOST_REQUESTS:
            raise RequestError(f"{path} has more than {MOST_REQUESTS:,} requests: limit them with --requests")
        yield request


def _from_zero(arrivals: list[RecordedArrival], rate: float | None, path: Path) -> Iterator[RecordedArrival]:
    if not arrivals:
        return
    first, factor = arrivals[0].due, 1.0
    if rate is not None:
        span = arrivals[-1].due - first
        if not span:
            raise RequestError(f"{path} has no recorded rate: at least 2 requests at two times are needed for --rate")
        factor = (len(arrivals) - 1) / span / rate
    for each in arrivals:
        yield RecordedArrival((each.due - first) * factor, each.id, each.after, each.delay)


def _request(request: WorkloadRequest, path: Path) -> GeneratedRequest:
    try:
        if "image" in request.output_modalities:
            return GeneratedImages.of(request)
        if request.output_modalities == ("audio",):
            return GeneratedSpeech.of(request)
    except RequestError as error:
        raise RequestError(
            f"{path}: the request at {request.arrival:g} s {error}: remove it, or give requests of the app"
        ) from error
    return GeneratedChat.of(request)
