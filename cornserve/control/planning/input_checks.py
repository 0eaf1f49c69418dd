"""Checks of a plan's inputs before anything is measured: without them, no profile could make the plan possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import dumps
from math import fsum

from cornserve.app.graph import AppGraph, always_runs_reason
from cornserve.app.model_document import model_document
from cornserve.app.planning import WorkloadType
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.infeasible import require_budget


def check_inputs(app: str, graph: AppGraph, workload: Mapping[str, WorkloadType], budget: Budget) -> None:
    """Raises `PlannerError` if the options of the app cannot be measured for a plan within the budget."""
    total = fsum(kind.share for kind in workload.values())
    shares = {
        RequestType(name, frozenset(kind.components), kind.frequency): kind.share / total
        for name, kind in workload.items()
    }
    model = ModelDocument.parse(dumps(model_document(app, graph)), source=f"{app}.json")
    check_workload(graph, model, shares, budget, "planning.workload")
    check_options(graph, graph.options)


def check_workload(
    graph: AppGraph, model: ModelDocument, shares: Mapping[RequestType, float], budget: Budget, where: str
) -> None:
    """Raises `PlannerError` if the app has no such requests, or if no plan has so few GPUs.

    Args:
        model: the planner's model of the graph.
        shares: the shares of the request types, whose sum is 1.
        where: the field of the types, for users.
    """
    for kind in shares:
        try:
            graph.type_of(kind.components)
        except KeyError:
            raise InvalidInputError(
                f"{where}.{kind.name}",
                f"needs {', '.join(sorted(kind.components))}, but no request of {model.name} does: its types are "
                f"{', '.join(graph.types)}",
            ) from None
        if always := graph.always_run(kind.frequency):
            raise InvalidInputError(f"{where}.{kind.name}.frequency", always_runs_reason(always))
    require_budget(PlanningProblem.from_graph(model.graph(), shares, lambda kind, step: 1.0), budget)


def check_options(graph: AppGraph, options: Iterable[str]) -> None:
    """Raises `PlannerError` if one of these options of the graph cannot be measured alone."""
    if excluded := [name for name in options if graph.conditional.issuperset(graph.options[name].components)]:
        raise InvalidInputError(
            ", ".join(sorted(excluded)),
            "runs only after a value has arrived, and cannot be measured alone: give a profile with its throughput",
        )
