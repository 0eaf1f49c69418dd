"""The interface of the workloads whose strategies of deployment are compared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Protocol

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
    """Yields without end whether the next request has images, in random order within each block."""
    random = Random(seed)
    block = [number < round(BLOCK * share) for number in range(BLOCK)]
    while True:
        yield from random.sample(block, BLOCK)


def draw_block(share: float) -> list[bool]:
    """Returns whether the requests of one block have images."""
    return list(islice(draw_types(share, seed=0), BLOCK))
