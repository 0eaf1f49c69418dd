"""Derives measurements, conversions and memory needs from a model's profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cornserve_planner.conversion.size_costs import TypeDemands
from cornserve_planner.conversion.throughput_conversion import ThroughputConversion, convert
from cornserve_planner.conversion.throughput_measurement import ThroughputMeasurement
from cornserve_planner.model.graph import DeploymentOption, ExecutorGraph, RequestType
from cornserve_planner.profiles.profile import MixEntry, ModelProfile, OptionProfile
from cornserve_planner.profiles.profile_matching import check_names, matching_entries
from cornserve_planner.requests.request_sizes import RequestSizes, mean_sizes
from cornserve_planner.workload.document import Workload


def profile_measurements(
    graph: ExecutorGraph, profile: ModelProfile
) -> tuple[tuple[ThroughputMeasurement, ...], TypeDemands]:
    """Returns the profile's measurements of the model's options, and the request types of their mixes."""
    measurements: list[ThroughputMeasurement] = []
    types: dict[str, RequestType] = {}
    sizes: dict[str, RequestSizes] = {}
    for option, entry in _entries(graph, profile):
        for throughput in entry.throughput:
            mix: dict[str, float] = {}
            for part in throughput.mix or [MixEntry(components=option.components, share=1.0, sizes=throughput.sizes)]:
                name = _type_name(part)
                types[name], sizes[name] = RequestType(name, frozenset(part.components)), part.sizes
                mix[name] = mix.get(name, 0.0) + part.share
            rate = throughput.rate
            measurements.append(
                ThroughputMeasurement(option.name, rate.value, mix, rate.tag, rate.source, throughput.error)
            )
    return tuple(measurements), TypeDemands(types, sizes)


def _type_name(part: MixEntry) -> str:
    sizes = ", ".join(f"{unit} {size:g}" for unit, size in sorted(part.sizes.items()))
    return f"profiled with {'+'.join(sorted(part.components))}{f' ({sizes})' if sizes else ''}"


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
    measurements, profiled = profile_measurements(graph, profile)
    kept = tuple(measurement for measurement in measurements if measurement.option not in assumed)
    sizes = {name: mean_sizes(found) for name, found in workload.sizes.items()}
    return convert(graph, [*workload.shares, *profiled.types.values()], kept, assumed, {**sizes, **profiled.sizes})


def memory_per_gpu(graph: ExecutorGraph, profile: ModelProfile) -> dict[str, float]:
    """Returns bytes by option: a GPU's part of the weights and of the cache of one request."""
    return {
        option.name: (entry.weights.value + (entry.cache_per_request.value if entry.cache_per_request else 0))
        / entry.gpus
        for option, entry in _entries(graph, profile)
        if entry.weights is not None
    }


def _entries(graph: ExecutorGraph, profile: ModelProfile) -> Iterable[tuple[DeploymentOption, OptionProfile]]:
    return ((option, entry) for option in graph.options for entry in matching_entries(option, profile))
