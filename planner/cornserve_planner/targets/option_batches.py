"""The batch sizes of deployment options, from the latency curves of a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import ExecutorGraph
from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, OptionProfile
from cornserve_planner.profiles.profile_matching import matching_entries
from cornserve_planner.targets.queueing import BatchServer

RATE_TOLERANCE = 1.5
"""A throughput may exceed the rate of the latency curve by this factor: larger batches may serve more."""


@dataclass(frozen=True, slots=True)
class OptionBatches:
    """Batch sizes that an option's profile has, and their latency.

    Args:
        weights: bytes of the weights on each GPU of a replica; None if unknown.
        cache: bytes on each GPU for a request in flight.
    """

    request: BatchLatency
    first_token: BatchLatency | None = None
    between_tokens: BatchLatency | None = None
    weights: float | None = None
    cache: float = 0.0

    def memory(self, batch: int) -> float | None:
        return None if self.weights is None else self.weights + batch * self.cache

    def rate(self, batch: int) -> float:
        """Returns requests per second at full load."""
        return batch / self.request.at(batch)

    def slowdown(self, batch: int | None) -> float:
        """Returns the seconds per request relative to the batch size with the highest rate. None: the smallest."""
        return max(map(self.rate, self.request.batch)) / self.rate(batch or self.request.batch[0])

    def fitting(self, memory: float | None, between_tokens: float | None) -> Iterator[int]:
        """Returns the batch sizes that fit in memory and take at most the given seconds between tokens.

        The smallest batch size is returned even if it does not fit.
        """
        for index, batch in enumerate(self.request.batch):
            needed = self.memory(batch)
            if index and memory is not None and needed is not None and needed > memory:
                return
            if between_tokens is None or self.between_tokens is None or self.between_tokens.at(batch) <= between_tokens:
                yield batch

    def server(self, batch: int, *, first_token: bool) -> BatchServer:
        """Returns a replica, until the first token of its output or until the end."""
        delay = self.first_token if first_token and self.first_token is not None else self.request
        joins = self.first_token is not None or self.between_tokens is not None
        return BatchServer(batch, self.request.at(batch), delay.at(batch), joins)


def profile_batches(graph: ExecutorGraph, profile: ModelProfile) -> dict[str, OptionBatches]:
    """Returns the batch sizes of the options whose profile has a curve of complete requests."""
    found = (
        (option.name, _option_batches(entry)) for option in graph.options for entry in matching_entries(option, profile)
    )
    return {name: batches for name, batches in found if batches is not None}


def _option_batches(entry: OptionProfile) -> OptionBatches | None:
    curves: dict[str, BatchLatency] = {}
    for curve in entry.latency:
        curves.setdefault(curve.measures, curve)
    if "request" not in curves:
        return None
    curve = curves["request"]
    fastest = max(batch / seconds for batch, seconds in zip(curve.batch, curve.seconds, strict=True))
    for index, throughput in enumerate(entry.throughput):
        if not throughput.mix and throughput.rate.value > fastest * RATE_TOLERANCE:
            raise InvalidInputError(
                f"options.{entry.option}.throughput.{index}.rate",
                f"is {throughput.rate.value:g} requests/s, but the latency curve allows {fastest:.3g} (batch size / "
                "seconds): measure both with the same requests",
            )
    return OptionBatches(
        curves["request"],
        curves.get("first_token"),
        curves.get("between_tokens"),
        None if entry.weights is None else entry.weights.value / entry.gpus,
        0.0 if entry.cache_per_request is None else entry.cache_per_request.value / entry.gpus,
    )
