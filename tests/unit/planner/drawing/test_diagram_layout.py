from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve_planner.drawing.layout import DiagramEdge, layout_graph

NODES = [f"n{index}" for index in range(8)]

acyclic = st.sets(
    st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1]), max_size=16
).map(lambda pairs: [(NODES[start], NODES[end]) for start, end in sorted(pairs)])


@settings(derandomize=True)
@given(acyclic)
def test_arrows_point_to_the_right_and_positions_are_unique(edges: list[DiagramEdge]) -> None:
    positioned = layout_graph(NODES, edges)

    assert all(positioned.positions[start][0] < positioned.positions[end][0] for start, end in edges)
    passed = [point for route in positioned.routes.values() for point in route[1:-1]]
    all_points = [*positioned.positions.values(), *passed]
    assert len(all_points) == len(set(all_points))
    for (start, end), route in positioned.routes.items():
        assert (route[0], route[-1]) == (positioned.positions[start], positioned.positions[end])
        assert [x for x, _ in route] == [positioned.positions[start][0] + step for step in range(len(route))]


def test_an_arrow_across_a_layer_avoids_its_boxes() -> None:
    positioned = layout_graph(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])

    assert (positioned.layers, positioned.rows) == (3, 2)
    assert positioned.routes["a", "c"][1] != positioned.positions["b"]


def test_layers_are_sorted_so_that_arrows_do_not_cross() -> None:
    positioned = layout_graph(["a", "b", "c", "d"], [("a", "d"), ("b", "c")])

    (_, a), (_, b), (_, c), (_, d) = (positioned.positions[node] for node in "abcd")
    assert (a > b) == (d > c)


def test_a_single_node_is_centred() -> None:
    assert layout_graph(["a"], []).positions == {"a": (0, 0)}


def test_an_arrow_that_closes_a_cycle_points_backwards() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")]
    positioned = layout_graph(["a", "b", "c"], edges)

    assert [positioned.positions[node][0] for node in "abc"] == [0, 1, 2]
    assert positioned.backward == {("c", "a"), ("c", "b")}
    for (start, end), route in positioned.routes.items():
        assert (route[0], route[-1]) == (positioned.positions[start], positioned.positions[end])
    assert positioned.routes["c", "a"][1] != positioned.positions["b"]


@pytest.mark.parametrize(
    ("edges", "reason"),
    [([("a", "a")], "a → a is a loop"), ([("a", "x")], "a → x names an unknown node")],
)
def test_an_invalid_edge_is_rejected(edges: list[DiagramEdge], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        layout_graph(["a", "b"], edges)
