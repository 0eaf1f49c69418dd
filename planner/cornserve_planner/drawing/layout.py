"""Assigns positions to the boxes and arrows of a graph: in layers from left to right, with few crossings.

Uses the layered method of Sugiyama, Tagawa and Toda (1981). A node's layer is one more than the maximum layer of its
predecessors. An edge that spans several layers gets a slot in each of them. Each layer is sorted by the mean position
of its neighbors. Edges that close a cycle are ignored in this step and drawn backward.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

SWEEPS = 8

DiagramEdge = tuple[str, str]
Point = tuple[float, float]
_Slot = str | tuple[DiagramEdge, int]
"""A node, or the slot of an edge in a layer that it crosses."""


@dataclass(frozen=True, slots=True)
class DiagramLayout:
    """Positions in units of layers (x, from 0) and rows (y, upward, centered at 0)."""

    positions: Mapping[str, Point]
    routes: Mapping[DiagramEdge, Sequence[Point]]
    """The points of each edge from its start to its end, including its slots in the layers between them."""
    backward: frozenset[DiagramEdge] = frozenset()
    """Edges that close a cycle and point to the left."""

    @property
    def layers(self) -> int:
        return 1 + int(max(x for x, _ in self.positions.values()))

    @property
    def rows(self) -> float:
        """The distance between the highest and the lowest position, in rows."""
        heights = [y for route in (*self.routes.values(), self.positions.values()) for _, y in route]
        return 1 + max(heights) - min(heights)


def layout_graph(nodes: Sequence[str], edges: Sequence[DiagramEdge]) -> DiagramLayout:
    """Raises `ValueError` for an edge from a node to itself, or with an unknown node."""
    backward = _backward_edges(nodes, edges)
    forward = {edge: edge[::-1] if edge in backward else edge for edge in edges}
    layer_of = _assign_layers(nodes, [*forward.values()])
    chains = {edge: _chain(edge, forward[edge], layer_of) for edge in edges}
    layers: list[list[_Slot]] = [[] for _ in range(1 + max(layer_of.values(), default=0))]
    for node in nodes:
        layers[layer_of[node]].append(node)
    neighbours: dict[_Slot, list[_Slot]] = {}
    for edge, chain in chains.items():
        start, _ = forward[edge]
        for offset, (before, after) in enumerate(itertools.pairwise(chain), layer_of[start] + 1):
            neighbours.setdefault(before, []).append(after)
            neighbours.setdefault(after, []).append(before)
            if not isinstance(after, str):
                layers[offset].append(after)
    _sort_layers(layers, neighbours)
    position_of = {slot: (float(x), y) for x, layer in enumerate(layers) for slot, y in _slot_heights(layer)}
    return DiagramLayout(
        positions={node: position_of[node] for node in nodes},
        routes={
            edge: [position_of[slot] for slot in (reversed(chain) if edge in backward else chain)]
            for edge, chain in chains.items()
        },
        backward=backward,
    )


def _backward_edges(nodes: Sequence[str], edges: Sequence[DiagramEdge]) -> frozenset[DiagramEdge]:
    """Returns the edges that close a cycle, found by a depth-first search from the first node."""
    successors: dict[str, list[str]] = {node: [] for node in nodes}
    for start, end in edges:
        if start not in successors or end not in successors or start == end:
            raise ValueError(f"the edge {start} → {end} {'is a loop' if start == end else 'names an unknown node'}")
        successors[start].append(end)
    found: set[DiagramEdge] = set()
    done: set[str] = set()

    def walk(node: str, ancestors: frozenset[str]) -> None:
        for after in successors[node]:
            if after in ancestors:
                found.add((node, after))
            elif after not in done:
                walk(after, ancestors | {after})
        done.add(node)

    for node in nodes:
        if node not in done:
            walk(node, frozenset({node}))
    return frozenset(found)


def _assign_layers(nodes: Sequence[str], edges: Sequence[DiagramEdge]) -> dict[str, int]:
    """Returns the layer of each node of an acyclic graph."""
    layer_of = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for start, end in edges:
            layer_of[end] = max(layer_of[end], layer_of[start] + 1)
    return layer_of


def _chain(edge: DiagramEdge, forward: DiagramEdge, layer_of: Mapping[str, int]) -> list[_Slot]:
    start, end = forward
    return [start, *((edge, layer) for layer in range(layer_of[start] + 1, layer_of[end])), end]


def _sort_layers(layers: list[list[_Slot]], neighbours: Mapping[_Slot, Sequence[_Slot]]) -> None:
    """Sorts each layer in place by the mean height of its neighbors in the previous layer of the sweep."""
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        order = layers if forward else layers[::-1]
        for fixed, moved in itertools.pairwise(order):
            height = dict(_slot_heights(fixed))
            own = dict(_slot_heights(moved))
            moved.sort(key=lambda slot: -_mean_height(neighbours.get(slot, ()), height, own[slot]))


def _mean_height(neighbours: Sequence[_Slot], height: Mapping[_Slot, float], otherwise: float) -> float:
    found = [height[slot] for slot in neighbours if slot in height]
    return mean(found) if found else otherwise


def _slot_heights(layer: Sequence[_Slot]) -> Iterator[tuple[_Slot, float]]:
    for index, slot in enumerate(layer):
        yield slot, (len(layer) - 1) / 2 - index
