"""The file that describes a workload: request types with their shares, or a file of requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cornserve_plan.plan import SHARES_TOLERANCE
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Components, Name
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.request_types import Modalities, WorkloadSample
from cornserve_planner.requests.request import WorkloadRequest
from cornserve_planner.requests.request_sizes import RequestSizes
from cornserve_planner.workload.request_files import read_requests

REQUEST_SUFFIXES = (".jsonl", ".csv")
"""File names of requests."""


MAX_TYPES = 256
"""The number of types that a deployed plan can have."""


@dataclass(frozen=True, slots=True)
class Workload:
    """
    Args:
        shares: the share of each request type; their sum is 1.
        rate: requests per second, if known.
        sizes: by name of a type, the known sizes of its requests.
    """

    shares: Mapping[RequestType, float]
    rate: float | None = None
    sizes: Mapping[str, tuple[RequestSizes, ...]] = field(default_factory=dict)

    @classmethod
    def of_requests(
        cls, requests: Iterable[WorkloadRequest], modalities: Modalities, rate: float | None = None
    ) -> Workload:
        """Returns the workload of requests."""
        sample = WorkloadSample(modalities)
        for request in requests:
            sample.add(request)
        return cls(sample.shares(), rate, sample.sizes())


class TypeEntry(DocumentPart):
    """A request type.

    Args:
        frequency: by component, how many times the mean request runs it, if not once.
    """

    components: Components
    share: Annotated[float, Field(ge=0, le=1)]
    sizes: RequestSizes = Field(default={})
    frequency: dict[Name, Annotated[float, Field(gt=0)]] = Field(default={})

    @model_validator(mode="after")
    def _check_frequency(self) -> Self:
        if unknown := sorted(self.frequency.keys() - set(self.components)):
            raise ValueError(f"frequency: {', '.join(unknown)} is not one of the type's components: add it to them")
        return self


class WorkloadDocument(Document):
    """`format: cornserve-planner/workload`.

    rate: 10
    types:
      text: {components: [llm], share: 0.4}
      image: {components: [vision_encoder, llm], share: 0.6}

    Instead of `types`, `requests: day.jsonl` gives a file of requests, relative to the document.
    """

    kind = "workload"

    rate: Annotated[float, Field(gt=0)] | None = None
    types: dict[Name, TypeEntry] = Field(default={})
    requests: str | None = None

    @model_validator(mode="after")
    def _check_types_or_requests(self) -> Self:
        if bool(self.types) == bool(self.requests):
            raise ValueError("give either types or requests")
        if len(self.types) > MAX_TYPES:
            raise ValueError(
                f"types: are {len(self.types)}: give at most {MAX_TYPES}, with the shares of similar ones added"
            )
        total = math.fsum(entry.share for entry in self.types.values())
        if self.types and abs(total - 1) > SHARES_TOLERANCE:
            raise ValueError(f"types: the shares add up to {total:.6g}, not to 1")
        return self

    def to_workload(self) -> Workload:
        """Returns the workload of a document with `types`."""
        shares = {
            RequestType(name, frozenset(entry.components), entry.frequency): entry.share
            for name, entry in self.types.items()
        }
        return Workload(shares, self.rate, {name: (entry.sizes,) for name, entry in self.types.items() if entry.sizes})


def read_workload(path: Path, modalities: Modalities | None = None) -> Workload:
    """Reads a workload file or a file of requests.

    Args:
        modalities: the components that each modality needs. Required for a file of requests.
    """
    if path.suffix in REQUEST_SUFFIXES:
        return _workload_from_file(path, modalities)
    document = WorkloadDocument.read(path)
    if document.requests is not None:
        found = _workload_from_file(path.parent / document.requests, modalities)
        return replace(found, rate=document.rate or found.rate)
    return document.to_workload()


def workload_files(path: Path) -> tuple[Path, ...]:
    """Returns a workload file and the file of requests that it names."""
    document = None if path.suffix in REQUEST_SUFFIXES else WorkloadDocument.read(path)
    return (path,) if document is None or document.requests is None else (path, path.parent / document.requests)


def _workload_from_file(path: Path, modalities: Modalities | None) -> Workload:
    if modalities is None:
        raise InvalidInputError(path.name, "the model has no `modalities`: add them to read a file of requests")
    sample = WorkloadSample(modalities)
    first = last = 0.0
    for number, request in enumerate(read_requests(path)):
        first, last = first if number else request.arrival, request.arrival
        sample.add(request)
    if sample.count < 2:
        raise InvalidInputError(path.name, f"has {sample.count} requests: at least 2 are needed for shares and a rate")
    span = last - first
    return Workload(sample.shares(), (sample.count - 1) / span if span else None, sample.sizes())
