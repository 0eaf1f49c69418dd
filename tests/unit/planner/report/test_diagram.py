from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.drawing.plot import draw
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.report.diagram import REQUESTS, graph_diagram, rate_chart
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.cells import solve_cells
from cornserve_planner.solve.optimization import max_rate


def test_arrows_have_the_rates_of_the_paths() -> None:
    inputs = load_inputs("qwen2.5-omni-7b")
    apart = ["image_encoder", "video_encoder", "audio_encoder", "llm", "audio_generator"]
    plan = max_rate(inputs.problem.restricted_to(apart), Budget(gpus=12))
    diagram = graph_diagram(inputs.graph, inputs.problem, plan, count=3)

    assert diagram.boxes.keys() == {REQUESTS, *plan.replicas}
    assert {end for edge in diagram.rates for end in edge} == diagram.boxes.keys()
    images = sum(entry.rate for entry in plan.rates)  # every request has an image
    assert diagram.rates[REQUESTS, "image_encoder"] == pytest.approx(images)
    assert diagram.rates["image_encoder", "llm"] == pytest.approx(images)
    assert diagram.rates[REQUESTS, "video_encoder"] == pytest.approx(images / 2)
    assert diagram.rates["llm", "audio_generator"] == pytest.approx(images / 5)
    assert (REQUESTS, "llm") not in diagram.rates
    assert diagram.title.startswith("3 × ")
    assert max(box.utilization for box in diagram.boxes.values()) == pytest.approx(1)


LOOP = ModelDocument.parse(
    """
format: cornserve-planner/model
version: 1
name: loop
components: {a: {}, b: {after: [a]}, c: {after: [b]}, d: {after: [c]}}
options: {AC: {components: [a, c]}, B: {components: [b]}, CD: {components: [c, d]}}
paths: [[AC, B, AC, CD]]
""",
    "loop.yaml",
)


def test_a_path_that_returns_to_an_option_is_drawn(tmp_path: Path) -> None:
    graph = LOOP.graph()
    problem = PlanningProblem.from_graph(graph, {RequestType("all", frozenset("abcd")): 1.0}, lambda kind, step: 1.0)
    diagram = graph_diagram(graph, problem, max_rate(problem, Budget(gpus=4)))
    draw(tmp_path / "loop.svg", [diagram])

    assert diagram.rates.keys() == {(REQUESTS, "AC"), ("AC", "B"), ("B", "AC"), ("AC", "CD")}
    assert (tmp_path / "loop.svg").read_text().count(">1/s</text>") == len(diagram.rates) + len([REQUESTS])


def test_the_chart_contains_cells_mixtures_and_monoliths() -> None:
    problem = load_inputs("qwen2.5-omni-7b", factors={"monolith": 3.0}).problem
    chart = rate_chart(problem, solve_cells(problem, 4))
    cells, mixtures, monoliths = chart.curves
    at = dict(mixtures.points)

    assert [gpus for gpus, _ in mixtures.points] == list(range(1, 9))
    assert all(at[gpus] >= rate * (1 - 1e-9) for gpus, rate in cells.points)
    assert monoliths.label == "monoliths"
    assert dict(monoliths.points)[8] == pytest.approx(capacity(problem, {"monolith": 8})[0])
