"""Templates of requests: fixed ones, and those of a workload with new contents each time."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from random import Random
from typing import Protocol

from cornserve.bench.workload_requests import GeneratedRequest, workload_requests

MAX_TEMPLATES = 500
"""The maximum number of requests that are kept. Longer workloads are sampled at even intervals."""


class RequestTemplate(Protocol):
    @property
    def key(self) -> bytes:
        """A text that is equal for equal templates only."""
        ...

    def make(self, random: Random) -> bytes:
        """Returns a request as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class FixedRequest:
    """The same request each time. Caches of the executors may serve it."""

    key: bytes

    def make(self, random: Random) -> bytes:
        return self.key


def workload_templates(path: Path) -> list[GeneratedRequest]:
    """Returns templates of a planner's file of requests.

    Raises `RequestError` for requests that cannot be generated, and the planner's `InvalidInputError`.
    """
    found = workload_requests(path)
    return found[:: max(1, ceil(len(found) / MAX_TEMPLATES))]
