"""The requests of a simulation, from files of requests or from shares of request types."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain
from pathlib import Path

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.request_types import Modalities
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.requests.request import LONGEST_SECONDS, WorkloadRequest
from cornserve_planner.requests.request_sizes import RequestSizes
from cornserve_planner.workload.document import REQUEST_SUFFIXES, Workload, WorkloadDocument
from cornserve_planner.workload.request_files import read_requests

FindType = Callable[[frozenset[str]], str]
"""Returns the name of the request type with these components."""


class SimulatedRequest:
    """A request.

    Args:
        kind: the name of its type in the plan.
        text, media, output: numbers of tokens. None if they are unknown.
        name, after, delay: the name by which later requests refer to it, the names of the requests that must have
            ended before it is sent, and the seconds after the last of them.
    """

    __slots__ = ("after", "arrival", "delay", "id", "kind", "media", "name", "output", "text")

    def __init__(
        self,
        id: str,
        arrival: float,
        kind: str,
        text: int | None,
        media: int | None,
        output: int | None,
        *,
        name: str | None = None,
        after: tuple[str, ...] = (),
        delay: float = 0.0,
    ) -> None:
        self.id = id
        self.arrival = arrival
        self.kind = kind
        self.text = text
        self.media = media
        self.output = output
        self.name = name
        self.after = after
        self.delay = delay


@dataclass(frozen=True, slots=True)
class TypeLoad:
    """The load of a request type: its share of the requests, and their tokens."""

    kind: str
    share: float
    text: int | None = None
    media: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class PoissonRequests:
    """Requests with Poisson arrivals.

    Args:
        rate: requests per second.
        count: number of requests.
        seed: requests with one seed are the same.
    """

    types: tuple[TypeLoad, ...]
    rate: float
    count: int
    seed: int = 0

    def __iter__(self) -> Iterator[SimulatedRequest]:
        rng = random.Random(self.seed)
        bounds = list(accumulate(load.share for load in self.types))
        now = 0.0
        for number in range(self.count):
            now += rng.expovariate(self.rate)
            _check_arrival(now, f"is {self.rate:g}")
            load = self.types[0] if len(bounds) == 1 else rng.choices(self.types, cum_weights=bounds)[0]
            yield SimulatedRequest(f"{self.seed}-{number}", now, load.kind, load.text, load.media, load.output)


@dataclass(frozen=True)
class RecordedRequests:
    """The requests of a file. The first one arrives at 0.

    Args:
        factor: the recorded rate is multiplied with it.
        most: the maximum number of requests, or None.
    """

    path: Path
    modalities: Modalities
    find_type: FindType
    factor: float = 1.0
    most: int | None = None
    seed: int = 0
    _kinds: dict[tuple[object, object], str] = field(default_factory=dict, repr=False)

    def __iter__(self) -> Iterator[SimulatedRequest]:
        first: float | None = None
        for number, request in enumerate(read_requests(self.path)):
            if number == self.most:
                return
            first = request.arrival if first is None else first
            media = _media_tokens(request)
            arrival = (request.arrival - first) / self.factor
            _check_arrival(arrival, "is too low")
            yield SimulatedRequest(
                f"{self.seed}-{number}",
                arrival,
                self._kind(request),
                request.text_tokens,
                media,
                max(1, request.output_tokens),
                name=request.id,
                after=request.after,
                delay=request.delay,
            )

    def _kind(self, request: WorkloadRequest) -> str:
        key = request.input_modalities, request.output_modalities
        if key not in self._kinds:
            self._kinds[key] = self.find_type(self.modalities.needed_by(request))
        return self._kinds[key]


def read_load(
    plan: PlanFile, workload: Path | None, find_type: FindType, *, rate: float | None, count: int | None, seed: int
) -> Iterable[SimulatedRequest]:
    """Returns the requests to simulate.

    Args:
        workload: a file of requests, or of the shares of request types. By default, the plan's shares.
        rate: requests per second. By default, that of the workload or the plan.
        count: the number of requests. By default, those of the file, or 10,000.
    """
    path = workload
    if path is not None and path.suffix not in REQUEST_SUFFIXES:
        document = WorkloadDocument.read(path)
        if document.requests is None:
            return _poisson(
                plan, _type_loads(plan, document.to_workload(), find_type), rate or document.rate, count, seed
            )
        rate, path = rate or document.rate, path.parent / document.requests
    if path is None:
        types = tuple(TypeLoad(name, kind.share) for name, kind in plan.types.items() if kind.share)
        return _poisson(plan, types, rate, count, seed)
    modalities = next(iter(plan.models.values())).modalities
    if modalities is None:
        raise InvalidInputError(
            "--workload",
            f"{path.name} has requests, but the plan does not list the modalities of one model: give shares",
        )
    factor = 1.0 if rate is None else rate / _recorded_rate(path)
    return RecordedRequests(path, modalities, find_type, factor, count, seed)


def _check_arrival(seconds: float, rate: str) -> None:
    if seconds > LONGEST_SECONDS:
        raise InvalidInputError("--rate", f"{rate}: the requests take more than 10,000 years")


def _poisson(
    plan: PlanFile, types: tuple[TypeLoad, ...], rate: float | None, count: int | None, seed: int
) -> PoissonRequests:
    return PoissonRequests(types, rate or plan.target or plan.rate, 10_000 if count is None else count, seed)


def _type_loads(plan: PlanFile, workload: Workload, find_type: FindType) -> tuple[TypeLoad, ...]:
    return tuple(
        _type_load(
            find_type(kind.components),
            share,
            workload.sizes.get(kind.name, ({},))[0],
            _media_of(plan, kind.components),
        )
        for kind, share in workload.shares.items()
        if share
    )


def _media_of(plan: PlanFile, components: frozenset[str]) -> list[frozenset[str]]:
    """Returns, for each component that only media need, the sizes with tokens of the media that need it."""
    found: list[frozenset[str]] = []
    for model in plan.models.values():
        if model.modalities is not None:
            inputs = model.modalities.inputs
            found += [
                frozenset(f"{modality}_tokens" for modality, names in inputs.items() if component in names)
                for component in components.intersection(chain(*inputs.values())).difference(model.modalities.always)
            ]
    return found


def _type_load(
    kind: str, share: float, sizes: Mapping[str, float] | RequestSizes, media_of: Iterable[frozenset[str]]
) -> TypeLoad:
    known: Mapping[str, float] = {str(unit): size for unit, size in sizes.items()}
    media = [known[unit] for unit in ("image_tokens", "video_tokens", "audio_tokens") if unit in known]
    is_known = all(not units.isdisjoint(known) for units in media_of)
    text, output = known.get("text_tokens"), known.get("output_tokens")
    return TypeLoad(
        kind,
        share,
        None if text is None else round(text),
        round(sum(media)) if is_known and (media or text is not None) else None,
        None if output is None else max(1, round(output)),
    )


def _media_tokens(request: WorkloadRequest) -> int | None:
    total = 0
    for media in (request.images, request.videos, request.audios):
        for medium in media:
            if medium.tokens is None:
                return None
            total += medium.tokens
    return total


def _recorded_rate(path: Path) -> float:
    first = last = None
    count = 0
    for request in read_requests(path):
        first = request.arrival if first is None else first
        last = request.arrival
        count += 1
    if first is None or last is None or last <= first:
        raise InvalidInputError(
            "--rate", f"{path.name} has no recorded rate: at least 2 requests at two times are needed"
        )
    return (count - 1) / (last - first)
