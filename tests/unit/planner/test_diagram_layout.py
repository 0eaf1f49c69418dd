from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cornserve_planner.diagram_layout import DiagramEdge, layout_graph

NODES = [f"n{index}" for index in range(8)]

acyclic = st.sets(
    st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1]), max_size=16
).map(lambda pairs: [(NODES[start], NODES[end]) for start, end in sorted(pairs)])


@settings(derandomize=True, deadline=None)
@given(acyclic)
def test_arrows_point_to_the_right_and_positions_are_unique(edges: list[DiagramEdge]) -> None:
    laid = layout_graph(NODES, edges)

    assert all(laid.positions[start][0] < laid.positions[end][0] for start, end in edges)
    passed = [point for route in laid.routes.values() for point in route[1:-1]]
    taken = [*laid.positions.values(), *passed]
    assert len(taken) == len(set(taken))
    for (start, end), route in laid.routes.items():
        assert (route[0], route[-1]) == (laid.positions[start], laid.positions[end])
        assert [x for x, _ in route] == [laid.positions[start][0] + step for step in range(len(route))]


def test_an_arrow_across_a_layer_avoids_its_boxes() -> None:
    laid = layout_graph(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])

    assert (laid.layers, laid.rows) == (3, 2)
    assert laid.routes["a", "c"][1] != laid.positions["b"]


def test_layers_are_sorted_so_that_arrows_do_not_cross() -> None:
    laid = layout_graph(["a", "b", "c", "d"], [("a", "d"), ("b", "c")])

    (_, a), (_, b), (_, c), (_, d) = (laid.positions[node] for node in "abcd")
    assert (a > b) == (d > c)


def test_a_single_node_is_centred() -> None:
    assert layout_graph(["a"], []).positions == {"a": (0, 0)}


def test_an_arrow_that_closes_a_cycle_points_backwards() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "b")]
    laid = layout_graph(["a", "b", "c"], edges)

    assert [laid.positions[node][0] for node in "abc"] == [0, 1, 2]
    assert laid.backward == {("c", "a"), ("c", "b")}
    for (start, end), route in laid.routes.items():
        assert (route[0], route[-1]) == (laid.positions[start], laid.positions[end])
    assert laid.routes["c", "a"][1] != laid.positions["b"]


@pytest.mark.parametrize(
    ("edges", "reason"),
    [([("a", "a")], "a → a is a loop"), ([("a", "x")], "a → x names an unknown node")],
)
def test_an_invalid_edge_is_rejected(edges: list[DiagramEdge], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        layout_graph(["a", "b"], edges)
