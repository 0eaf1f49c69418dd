"""Builds the diagram of a plan: its executor graphs, and a chart of throughput by number of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cornserve_planner.drawing.layout import DiagramEdge
from cornserve_planner.drawing.plot import ChartCurve, DiagramBox, GraphDiagram, RateChart, draw
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.graph import ExecutorGraph
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cells import Cell, most_requests
from cornserve_planner.solve.explanation import utilization
from cornserve_planner.solve.strategies import strategy_rates

REQUESTS = "requests"
GRAPHS = 2
"""Maximum number of executor graphs in a diagram. The largest cells are drawn."""
WIDEST = 128
"""Maximum number of GPUs in the chart."""


def draw_plan(result: PlanResult, file: Path) -> None:
    """Draws the diagram. Raises `InvalidInputError` for an unsupported format, and `OSError` if writing fails."""
    graphs = [
        graph_diagram(result.inputs.graph, result.inputs.problem, entry.plan, entry.count)
        for entry in result.running[:GRAPHS]
    ]
    try:
        draw(file, graphs, None if result.whole else rate_chart(result.inputs.problem, result.cells))
    except ValueError as error:
        raise InvalidInputError(str(file), f"cannot be drawn: {error}") from error


def graph_diagram(graph: ExecutorGraph, problem: PlanningProblem, plan: Solution, count: int = 1) -> GraphDiagram:
    """Builds the diagram of the options that a plan uses and the request rates between them."""
    used = utilization(problem, plan)
    boxes = {REQUESTS: DiagramBox(REQUESTS, [f"{plan.rate:.3g}/s"], 0.0)}
    for name, replicas in plan.replicas.items():
        gpus = problem.option[name].gpus
        boxes[name] = DiagramBox(
            name, [f"{replicas} × {gpus} GPU{'s' * (gpus != 1)}", f"{used[name]:.0%} used"], used[name]
        )
    rates: dict[DiagramEdge, float] = {}
    for edge, rate in _edges(graph, problem, plan):
        rates[edge] = rates.get(edge, 0.0) + rate
    times = f"{count:,} × " if count > 1 else ""
    return GraphDiagram(f"{times}{plan.gpus} GPUs: {plan.capacity:.3g} requests/s", boxes, rates)


def rate_chart(problem: PlanningProblem, cells: tuple[Cell, ...]) -> RateChart:
    """Builds the chart of cells, their mixtures, and monoliths."""
    most = min(WIDEST, 2 * cells[-1].gpus)
    smallest = min(cell.gpus for cell in cells if cell.rate)
    mixtures = [(float(gpus), most_requests(cells, gpus).rate) for gpus in range(smallest, most + 1)]
    curves = [
        ChartCurve("cells", [(float(cell.gpus), cell.rate) for cell in cells if cell.rate], marks_only=True),
        ChartCurve("best mixture of cells", mixtures),
    ]
    monoliths = [(float(gpus), _monoliths(problem, gpus)) for gpus in range(smallest, most + 1)]
    curves += [ChartCurve("monoliths", monoliths)] if any(rate for _, rate in monoliths) else []
    return RateChart("Throughput by number of GPUs", curves)


def _monoliths(problem: PlanningProblem, gpus: int) -> float:
    """Returns the requests per second of monoliths."""
    results = strategy_rates(problem, Budget(gpus=gpus))
    return max((result.rate for result in results if result.strategy.monolithic), default=0.0)


def _edges(graph: ExecutorGraph, problem: PlanningProblem, plan: Solution) -> Iterator[tuple[DiagramEdge, float]]:
    steps = {(path.type, path.name): path.steps for path in problem.paths}
    for entry in plan.rates:
        path_steps = steps[entry.type, entry.path]
        for end, step in enumerate(path_steps, 1):
            if all(consumer != step.option for _, consumer in graph.transfers(path_steps[:end])):
                yield (REQUESTS, step.option), entry.rate
        yield from ((edge, entry.rate) for edge in graph.transfers(path_steps) if edge[0] != edge[1])
