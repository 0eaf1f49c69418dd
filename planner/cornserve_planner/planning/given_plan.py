"""Plans whose replicas are given, for simulations of apps that run without a plan."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_between
from cornserve_planner.inputs.planning_inputs import load_inputs
from cornserve_planner.inputs.service_targets import ServiceTargets, with_targets
from cornserve_planner.plan_file.build import plan_file, planned_parts
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.provenance import plan_origin
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.running_cells import MOST_REPLICAS
from cornserve_planner.solve.cells import Cell
from cornserve_planner.solve.given_replicas import solve_replicas


def plan_replicas(request: PlanRequest, replicas: Mapping[str, int]) -> PlanFile:
    """Returns a plan with one cell of these replicas, on whose paths they serve the highest rate.

    Args:
        request: the inputs of the plan.

    Raises `InvalidInputError` for unknown options, and `InfeasibleError` if the replicas do not serve all types.
    """
    inputs = load_inputs(request.model, request.workload, request.profile, request.gpu_types, request.factors)
    inputs = with_targets(inputs, ServiceTargets(utilization=1.0))
    for name, number in replicas.items():
        if name not in inputs.problem.option:
            known = ", ".join(inputs.problem.option)
            raise InvalidInputError(
                "--replicas", f"{name!r} is not an option of {inputs.model.name}: use one of {known}"
            )
        require_between(f"--replicas {name}", number, 1, MOST_REPLICAS)
    if request.rate is None and inputs.workload.rate is None:
        raise InvalidInputError("--rate", "is missing: given replicas have no planned rate")
    plan = solve_replicas(inputs.problem, replicas)
    if not plan.rate:
        raise InfeasibleError("--replicas", "serve only a part of the request types: add the options of one path")
    origin = plan_origin(
        inputs, request.model, request.workload, request.profile, request.gpu_types,
        factors=request.factors, options={"replicas": dict(replicas)},
    )  # fmt: skip
    cells = (Cell(plan.gpus, plan.capacity, plan),)
    return plan_file(planned_parts(inputs), inputs.problem, cells, {plan.gpus: 1}, None, origin)
