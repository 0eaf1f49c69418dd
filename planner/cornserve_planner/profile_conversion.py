"""Derives measurements, conversions and memory needs from a model's profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cornserve_planner.graph import ExecutorGraph, RequestType
from cornserve_planner.profiles.profile import ModelProfile, OptionProfile, Throughput
from cornserve_planner.profiles.profile_matching import check_names, matching_entries
from cornserve_planner.throughput_conversion import ThroughputConversion, ThroughputMeasurement, convert
from cornserve_planner.workload.document import Workload


def profile_measurements(
    graph: ExecutorGraph, profile: ModelProfile
) -> tuple[tuple[ThroughputMeasurement, ...], dict[str, RequestType]]:
    """Returns the profile's measurements of the model's options, and the request types of their mixes by name."""
    measurements, types = [], {}
    for entry in _entries(graph, profile):
        for throughput in entry.throughput:
            mix: dict[str, float] = {}
            for components, share in _mix(graph, entry, throughput):
                kind = RequestType(f"profiled with {'+'.join(sorted(components))}", components)
                types[kind.name] = kind
                mix[kind.name] = mix.get(kind.name, 0.0) + share
            measurements.append(ThroughputMeasurement(entry.option, throughput.rate.value, mix))
    return tuple(measurements), types


def convert_profile(
    graph: ExecutorGraph,
    profile: ModelProfile,
    workload: Workload,
    factors: Mapping[str, float] | None = None,
) -> ThroughputConversion:
    """Applies [C Algorithm 3] to the profile's throughputs.

    Args:
        factors: assumed α by option; they replace the profile's throughputs of these options.

    Raises `InvalidInputError` naming an option that was not profiled, or that the model does not have.
    """
    check_names(graph, profile)
    assumed = dict(factors or {})
    measurements, types = profile_measurements(graph, profile)
    kept = tuple(measurement for measurement in measurements if measurement.option not in assumed)
    return convert(graph, [*workload.shares, *types.values()], kept, assumed)


def memory_per_gpu(graph: ExecutorGraph, profile: ModelProfile) -> dict[str, float]:
    """Returns bytes by option: a GPU's part of the weights and of the cache of one request."""
    return {
        entry.option: (entry.weights.value + (entry.cache_per_request.value if entry.cache_per_request else 0))
        / entry.gpus
        for entry in _entries(graph, profile)
        if entry.weights is not None
    }


def _entries(graph: ExecutorGraph, profile: ModelProfile) -> Iterable[OptionProfile]:
    return (entry for option in graph.options for entry in matching_entries(option, profile))


def _mix(graph: ExecutorGraph, entry: OptionProfile, throughput: Throughput) -> Iterable[tuple[frozenset[str], float]]:
    if not throughput.mix:
        return [(frozenset(graph.option[entry.option].components), 1.0)]
    return [(frozenset(part.components), part.share) for part in throughput.mix]
