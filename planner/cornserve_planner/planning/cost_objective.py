"""The cost that a plan for a rate minimizes. GPUs of different types are never added."""

from __future__ import annotations

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.plan_file.parts import ANY_GPU


def usable_gpu_types(problem: PlanningProblem) -> tuple[str, ...]:
    """Returns the GPU types of the options that fit, sorted."""
    return tuple(sorted({problem.option[name].gpu or ANY_GPU for path in problem.usable for name in path.seconds}))


def cost_objective(given: str | None, problem: PlanningProblem) -> str:
    """Returns the given objective, or the default: GPUs, or dollars for several GPU types.

    Raises `InvalidInputError` if it would add GPUs of different types.
    """
    types = usable_gpu_types(problem)
    if len(types) < 2:
        return given or "gpus"
    if given == "gpus":
        raise InvalidInputError(
            "--objective", f"GPUs of different types cannot be added ({', '.join(types)}): use --objective dollars"
        )
    return "dollars"
