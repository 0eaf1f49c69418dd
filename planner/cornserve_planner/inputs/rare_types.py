"""Request types that a model can receive although the workload does not contain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, combinations
from typing import Final

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import ExecutorGraph, RequestType
from cornserve_planner.model.request_types import Modalities

RARE_SHARE: Final = 1e-6
"""The share of a type that the model must serve: enough for a path, and too little for a replica."""


def unmeasured_types(types: Mapping[str, Iterable[str]], measured: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Returns the types that the model must serve but that cannot be planned, with the components whose times are
    unknown."""
    missing = {name: tuple(part for part in components if part not in measured) for name, components in types.items()}
    return {name: components for name, components in missing.items() if components}


def with_rare_types(
    graph: ExecutorGraph,
    shares: Mapping[RequestType, float],
    served: Mapping[str, Iterable[str]],
    modalities: Modalities | None,
    measured: frozenset[str],
) -> dict[RequestType, float]:
    """Adds the types that the model must serve with a small share, and with share 0 a type for every other combination
    of modalities that the model has a path for.

    Args:
        served: the components of the types that the model must serve, by name. Components of no such type run only
            after a value has arrived, and do not distinguish types.
        measured: components whose times are known. Types that need others cannot be planned.

    Raises `InvalidInputError` if a type of the workload has the name of another type.
    """
    required = [RequestType(name, frozenset(components)) for name, components in served.items()]
    early = frozenset().union(*(kind.components for kind in required)) if required else None
    known = {kind.components if early is None else kind.components & early for kind in shares}
    names = {kind.name for kind in shares}
    added: dict[RequestType, float] = {}
    for share, kinds in ((RARE_SHARE, required), (0.0, _combinations(modalities))):
        for kind in kinds:
            if kind.components in known or not kind.components <= measured or not _has_path(graph, kind):
                continue
            if kind.name in names:
                raise InvalidInputError(
                    f"types.{kind.name}", "does not need the components in its name: give the type another name"
                )
            known.add(kind.components)
            added[kind] = share
    rest = 1 - sum(added.values())
    return {**{kind: share * rest for kind, share in shares.items()}, **added}


def _combinations(modalities: Modalities | None) -> Iterable[RequestType]:
    """Yields the types of every combination of input and output modalities, the fewest modalities first."""
    if modalities is None:
        return
    groups = [*modalities.inputs.values(), *modalities.outputs.values()]
    for chosen in chain.from_iterable(combinations(groups, size) for size in range(len(groups) + 1)):
        if components := frozenset(modalities.always).union(*chosen):
            yield modalities.request_type(components)


def _has_path(graph: ExecutorGraph, kind: RequestType) -> bool:
    try:
        graph.valid_paths(kind)
    except InvalidInputError:
        return False
    return True
