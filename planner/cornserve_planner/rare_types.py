"""Request types that a model can receive although the workload does not contain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, combinations

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.graph import ExecutorGraph, RequestType
from cornserve_planner.workload.request_types import Modalities


def with_rare_types(
    graph: ExecutorGraph, shares: Mapping[RequestType, float], modalities: Modalities | None, measured: frozenset[str]
) -> dict[RequestType, float]:
    """Adds, with share 0, a type for every other combination of modalities that the model has a path for.

    Args:
        measured: components whose times are known. Types that need others cannot be planned.

    Raises `InvalidInputError` if a type of the workload has the name of another type.
    """
    found = dict(shares)
    if modalities is None:
        return found
    known = {kind.components for kind in shares}
    names = {kind.name for kind in shares}
    for components in _combinations(modalities):
        kind = modalities.request_type(components)
        if components in known or not components <= measured or not _has_path(graph, kind):
            continue
        if kind.name in names:
            raise InvalidInputError(
                f"types.{kind.name}", "does not need the components in its name: give the type another name"
            )
        known.add(components)
        found[kind] = 0.0
    return found


def _combinations(modalities: Modalities) -> Iterable[frozenset[str]]:
    """Yields the components of every combination of input and output modalities, the fewest modalities first."""
    groups = [*modalities.inputs.values(), *modalities.outputs.values()]
    for chosen in chain.from_iterable(combinations(groups, size) for size in range(len(groups) + 1)):
        if components := frozenset(modalities.always).union(*chosen):
            yield components


def _has_path(graph: ExecutorGraph, kind: RequestType) -> bool:
    try:
        graph.valid_paths(kind)
    except InvalidInputError:
        return False
    return True
