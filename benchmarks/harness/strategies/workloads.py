"""The workloads whose strategies of deployment are compared: requests of two types in given shares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Protocol

Paths = list[tuple[str, ...]]
"""Paths as lists of options."""

BLOCK = 20
"""Consecutive requests in which each request type has exactly its share, so that runs differ less."""


class StrategyWorkload(Protocol):
    """An app with requests of several types, in given shares."""

    @property
    def name(self) -> str: ...

    @property
    def strategies(self) -> dict[str, Paths]:
        """Paths of each strategy."""
        ...

    def write_app(self, directory: Path) -> Path:
        """Returns the file or the directory that `cornserve deploy` takes."""
        ...

    def profile_arguments(self, directory: Path) -> tuple[str, ...]:
        """Returns the arguments of `cornserve profile` that give the requests."""
        ...

    def write_shares(self, directory: Path) -> Path:
        """Returns a workload file for the planner."""
        ...

    def draw_requests(self, seed: int) -> Iterator[bytes]:
        """Yields random requests without end, as JSON."""
        ...


class WorkloadRequests(Protocol):
    """Requests of two types, or of one."""

    def source(self, name: str) -> str:
        """Returns the source of an app with all paths."""
        ...

    @property
    def strategies(self) -> dict[str, Paths]: ...

    @property
    def components(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The components of the requests of the first and of the second type."""
        ...

    def draw(self, random: Random, is_first: bool) -> Mapping[str, Any]:
        """Returns a request of the first type or of the second."""
        ...


@dataclass(frozen=True, slots=True)
class TypedWorkload:
    """
    Args:
        share: share of the requests of the first type.
    """

    name: str
    requests: WorkloadRequests
    share: float

    @property
    def strategies(self) -> dict[str, Paths]:
        return self.requests.strategies

    def write_app(self, directory: Path) -> Path:
        path = directory / f"{self.name}.py"
        path.write_text(self.requests.source(self.name))
        return path

    def profile_arguments(self, directory: Path) -> tuple[str, ...]:
        random = Random(0)
        lines = [json.dumps(self.requests.draw(random, is_first)) + "\n" for is_first in draw_block(self.share)]
        path = directory / f"{self.name}.jsonl"
        path.write_text("".join(lines))
        return "--requests", str(path)

    def write_shares(self, directory: Path) -> Path:
        shares = (self.share, round(1 - self.share, 6))
        types = {
            "+".join(components): {"components": components, "share": share}
            for components, share in zip(self.requests.components, shares, strict=True)
            if share
        }
        path = directory / f"{self.name}.workload.json"
        path.write_text(json.dumps({"format": "cornserve-planner/workload", "version": 1, "types": types}))
        return path

    def draw_requests(self, seed: int) -> Iterator[bytes]:
        random = Random(seed)
        return (json.dumps(self.requests.draw(random, first)).encode() for first in draw_types(self.share, seed))


def name_paths(encoder: str, llm: str) -> dict[str, Paths]:
    """Returns the strategies of a model of an encoder and a language model, whose components have these names."""
    monolith, separate, hybrid = (f"{encoder}+{llm}",), (encoder, llm), (encoder, f"{encoder}+{llm}")
    return {
        "monolith": [monolith],
        "separate": [separate],
        "hybrid": [hybrid, monolith],
        "planner": [monolith, separate, hybrid],
    }


def draw_types(share: float, seed: int) -> Iterator[bool]:
    """Yields without end whether the next request is of the first type, in random order within each block."""
    random = Random(seed)
    block = [number < round(BLOCK * share) for number in range(BLOCK)]
    while True:
        yield from random.sample(block, BLOCK)


def draw_block(share: float) -> list[bool]:
    """Returns whether the requests of one block are of the first type."""
    return list(islice(draw_types(share, seed=0), BLOCK))
