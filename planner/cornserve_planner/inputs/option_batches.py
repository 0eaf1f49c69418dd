"""The batch sizes of deployment options, from the latency curves of a profile."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import ExecutorGraph
from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, OptionProfile
from cornserve_planner.profiles.profile_matching import matching_entries

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

    def slowdown(self, batch: int) -> float:
        """Returns the seconds per request relative to the batch size with the highest rate."""
        return max(map(self.rate, self.request.batch)) / self.rate(batch)

    def best(self, memory: float | None, between_tokens: float | None, batch_seconds: float | None) -> int:
        """Returns the batch size with the highest rate of those that fit in memory and meet the limits.

        Args:
            between_tokens: the most seconds between two tokens, for options that generate tokens.
            batch_seconds: the most seconds of a batch, for other options.
        """
        limit = batch_seconds if self.between_tokens is None and self.first_token is None else between_tokens
        curve = self.between_tokens or (None if self.first_token is not None else self.request)
        fitting = [
            batch
            for batch in self.request.batch
            if (memory is None or (self.memory(batch) or 0.0) <= memory)
            and (limit is None or curve is None or curve.at(batch) <= limit)
        ]
        return max(fitting or self.request.batch[:1], key=self.rate)


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
