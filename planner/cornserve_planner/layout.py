"""Where the boxes and arrows of a graph go: in layers from left to right, with few crossings.

The classical way (Sugiyama, Tagawa and Toda, 1981): a node stands one layer after the last of those it depends on, an
edge over several layers gets a place of its own in each, and layers are sorted by where their neighbours stand. Edges
that close a cycle are left out of that, and lead back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

SWEEPS = 8

Edge = tuple[str, str]
Point = tuple[float, float]
_Place = str | tuple[Edge, int]
"""A node, or the place of an edge in a layer that it passes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """In units of layers (x, from 0) and of rows (y, upwards, around 0)."""

    places: Mapping[str, Point]
    routes: Mapping[Edge, Sequence[Point]]
    """Of each edge: from its node to its node, by way of the layers between them."""
    backward: frozenset[Edge] = frozenset()
    """The edges that close a cycle, and so lead to the left."""

    @property
    def layers(self) -> int:
        return 1 + int(max(x for x, _ in self.places.values()))

    @property
    def rows(self) -> float:
        """How far apart the highest and the lowest place are, in rows."""
        heights = [y for route in (*self.routes.values(), self.places.values()) for _, y in route]
        return 1 + max(heights) - min(heights)


def layout(nodes: Sequence[str], edges: Sequence[Edge]) -> Layout:
    """Raises `ValueError` if an edge leads to its own node, or to what is no node."""
    backward = _closing(nodes, edges)
    ahead = {edge: edge[::-1] if edge in backward else edge for edge in edges}
    layer_of = _layers(nodes, [*ahead.values()])
    chains = {edge: _chain(edge, ahead[edge], layer_of) for edge in edges}
    layers: list[list[_Place]] = [[] for _ in range(1 + max(layer_of.values(), default=0))]
    for node in nodes:
        layers[layer_of[node]].append(node)
    neighbours: dict[_Place, list[_Place]] = {}
    for edge, chain in chains.items():
        start, _ = ahead[edge]
        for offset, (one, other) in enumerate(itertools.pairwise(chain), layer_of[start] + 1):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
            if not isinstance(other, str):
                layers[offset].append(other)
    _sort(layers, neighbours)
    where = {place: (float(x), y) for x, layer in enumerate(layers) for place, y in _spread(layer)}
    return Layout(
        places={node: where[node] for node in nodes},
        routes={
            edge: [where[place] for place in (reversed(chain) if edge in backward else chain)]
            for edge, chain in chains.items()
        },
        backward=backward,
    )


def _closing(nodes: Sequence[str], edges: Sequence[Edge]) -> frozenset[Edge]:
    """The edges that lead back to where a walk along the others has come from, from the first node on."""
    following: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in edges:
        if start not in following or end not in following or start == end:
            raise ValueError(f"the edge {start} → {end} leads to {'itself' if start == end else 'what is no node'}")
        following[start].append(end)
    found: set[Edge] = set()
    done: set[str] = set()

    def walk(node: str, behind: frozenset[str]) -> None:
        for after in following[node]:
            if after in behind:
                found.add((node, after))
            elif after not in done:
                walk(after, behind | {after})
        done.add(node)

    for node in nodes:
        if node not in done:
            walk(node, frozenset({node}))
    return frozenset(found)


def _layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Of edges without a cycle."""
    layer_of = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for start, end in edges:
            layer_of[end] = max(layer_of[end], layer_of[start] + 1)
    return layer_of


def _chain(edge: Edge, ahead: Edge, layer_of: Mapping[str, int]) -> list[_Place]:
    start, end = ahead
    return [start, *((edge, layer) for layer in range(layer_of[start] + 1, layer_of[end])), end]


def _sort(layers: list[list[_Place]], neighbours: Mapping[_Place, Sequence[_Place]]) -> None:
    """Sorts each layer, in place, by the mean height of its neighbours in the layers that stand already."""
    for sweep in range(SWEEPS):
        ahead = sweep % 2 == 0
        order = layers if ahead else layers[::-1]
        for fixed, moved in itertools.pairwise(order):
            height = dict(_spread(fixed))
            own = dict(_spread(moved))
            moved.sort(key=lambda it: -_mean_height(neighbours.get(it, ()), height, own[it]))


def _mean_height(neighbours: Sequence[_Place], height: Mapping[_Place, float], otherwise: float) -> float:
    found = [height[it] for it in neighbours if it in height]
    return mean(found) if found else otherwise


def _spread(layer: Sequence[_Place]) -> Iterator[tuple[_Place, float]]:
    for index, place in enumerate(layer):
        yield place, (len(layer) - 1) / 2 - index
