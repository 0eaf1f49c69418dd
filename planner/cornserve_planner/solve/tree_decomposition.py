"""Tree decompositions of the edges of a path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cornserve_planner.model.graph import Edge


@dataclass(frozen=True, slots=True)
class Bag:
    """A set of options that contains both ends of some edges. Bags form a tree.

    Args:
        separator: the options that the bag shares with its parent.
        parent: index of the parent, which contains all of `separator`; None if the bag has no parent.
    """

    options: tuple[str, ...]
    separator: tuple[str, ...]
    parent: int | None


def decompose(edges: Iterable[Edge]) -> tuple[Bag, ...]:
    """Returns a tree decomposition of the edges, without their directions. At least one bag contains each edge.

    Eliminates the option with the fewest neighbors first. For trees, the bags are the edges. For triangles, one bag is
    the triangle.
    """
    neighbors: dict[str, set[str]] = {}
    for start, end in edges:
        neighbors.setdefault(start, set()).add(end)
        neighbors.setdefault(end, set()).add(start)
    separators: dict[str, tuple[str, ...]] = {}
    while neighbors:
        option = min(neighbors, key=lambda name: (len(neighbors[name]), name))
        shared = neighbors.pop(option)
        for name in shared:
            neighbors[name] |= shared - {name}
            neighbors[name].remove(option)
        if shared:
            separators[option] = tuple(sorted(shared))
    index = {option: number for number, option in enumerate(separators)}
    return tuple(
        Bag((option, *shared), shared, min((index[name] for name in shared if name in index), default=None))
        for option, shared in separators.items()
    )
