"""The planning problem that a model, its profile and a workload pose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cornserve_planner.conversion import Conversion, Measurement, convert
from cornserve_planner.graph import ExecutorGraph, RequestType
from cornserve_planner.problem import GpuType, Problem
from cornserve_planner.profiles.matching import check_names, entries_of
from cornserve_planner.profiles.profile import OptionProfile, Profile, Throughput
from cornserve_planner.workload.document import Workload


def measurements(graph: ExecutorGraph, profile: Profile) -> tuple[tuple[Measurement, ...], dict[str, RequestType]]:
    """What a profile has of a model's options on their GPUs, and the request types of its mixes, by name."""
    found, types = [], {}
    for entry in _entries(graph, profile):
        for throughput in entry.throughput:
            mix: dict[str, float] = {}
            for components, share in _mix(graph, entry, throughput):
                kind = RequestType(f"profiled with {'+'.join(sorted(components))}", components)
                types[kind.name] = kind
                mix[kind.name] = mix.get(kind.name, 0.0) + share
            found.append(Measurement(entry.option, throughput.rate.value, mix))
    return tuple(found), types


def conversion(
    graph: ExecutorGraph,
    profile: Profile,
    workload: Workload,
    factors: Mapping[str, float] | None = None,
) -> Conversion:
    """Algorithm 3 with the profile's throughputs.

    Args:
        factors: α of options that have none; those of a profile count for nothing.

    Raises `InvalidInputError` naming what has not been profiled, or what the model does not have.
    """
    check_names(graph, profile)
    assumed = dict(factors or {})
    measured, types = measurements(graph, profile)
    kept = tuple(it for it in measured if it.option not in assumed)
    return convert(graph, [*workload.shares, *types.values()], kept, assumed)


def problem(
    graph: ExecutorGraph,
    profile: Profile,
    workload: Workload,
    gpus: Iterable[GpuType] = (),
    factors: Mapping[str, float] | None = None,
) -> Problem:
    """Raises `InvalidInputError` naming what has not been profiled, or what does not fit together."""
    seconds = conversion(graph, profile, workload, factors)
    return Problem.of(graph, workload.shares, seconds, gpus, memory(graph, profile))


def _entries(graph: ExecutorGraph, profile: Profile) -> Iterable[OptionProfile]:
    return (entry for option in graph.options for entry in entries_of(option, profile))


def _mix(graph: ExecutorGraph, entry: OptionProfile, throughput: Throughput) -> Iterable[tuple[frozenset[str], float]]:
    if not throughput.mix:
        return [(frozenset(graph.option[entry.option].components), 1.0)]
    return [(frozenset(part.components), part.share) for part in throughput.mix]


def memory(graph: ExecutorGraph, profile: Profile) -> dict[str, float]:
    """On each GPU of a replica: its part of the weights, and of what one request keeps."""
    return {
        entry.option: (entry.weights.value + (entry.cache_per_request.value if entry.cache_per_request else 0))
        / entry.gpus
        for entry in _entries(graph, profile)
        if entry.weights is not None
    }
