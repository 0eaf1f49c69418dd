"""The options of one run of the planner, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue

from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.inputs.service_targets import ServiceTargets
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.planning.cost_objective import cost_objective, usable_gpu_types
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.time_limit import DEFAULT_TIME_LIMIT


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of the command: a budget or a target rate, and the input files.

    Without a budget and a rate, the rate of the workload is used.

    Args:
        objective: `goodput`, or the cost that a rate minimizes. Default: GPUs, or dollars if the options have several
            GPU types, whose numbers cannot be added.
        running: the replicas that run now, whose goodput is also computed.
        survive: serve the rate also after the loss of any one replica, in one plan.
        late_binding: the options whose replicas are selected when the one step before them has ended.
    """

    model: str | ModelDocument
    gpus: int | None = None
    gpus_of: Mapping[str, int] = field(default_factory=dict)
    dollars: float | None = None
    rate: float | None = None
    workload: Path | None = None
    profile: Path | None = None
    gpu_types: Path | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    objective: str | None = None
    largest_cell: int = 64
    whole: bool = False
    solver: str = "highs"
    time_limit: float = DEFAULT_TIME_LIMIT
    targets: ServiceTargets = field(default_factory=ServiceTargets)
    explain: bool = False
    survive: bool = False
    late_binding: tuple[str, ...] = ()
    running: Mapping[str, int] = field(default_factory=dict)

    @property
    def budget(self) -> Budget:
        return Budget(self.gpus, self.gpus_of, self.dollars)

    @property
    def has_budget(self) -> bool:
        return self.budget != Budget()

    @property
    def needs_one_plan(self) -> bool:
        """Whether the request excludes cells."""
        budgets = bool(self.gpus_of or self.dollars)
        return self.whole or self.survive or budgets or self.objective == "dollars"

    @property
    def fields(self) -> dict[str, JsonValue]:
        """The options of the command, for the provenance of the plan."""
        return {
            "gpus": self.gpus,
            "gpus_of": dict(self.gpus_of),
            "dollars": self.dollars,
            "rate": self.rate,
            "objective": self.objective,
            "largest_cell": self.largest_cell,
            "whole": self.whole,
            "solver": self.solver,
            "time_limit": self.time_limit,
            "survive": self.survive,
            "late_binding": [*self.late_binding],
            "utilization": self.targets.utilization,
            "robust": self.targets.robust,
            "ttft": [*self.targets.latency.texts("ttft")],
            "tbt": [*self.targets.latency.texts("tbt")],
            "e2e": [*self.targets.latency.texts("e2e")],
            "percentile": self.targets.latency.percentile,
        }

    def check(self) -> None:
        """Raises `InvalidInputError` if options contradict each other."""
        if self.rate is not None:
            require_positive("--rate", self.rate)
        if self.dollars is not None:
            require_positive("--dollars", self.dollars)
        if self.objective == "goodput" and not self.targets.latency:
            raise InvalidInputError("--objective", "goodput needs a target: give --ttft, --tbt or --e2e")
        if self.objective == "goodput" and self.budget == Budget():
            raise InvalidInputError("--objective", "goodput needs a budget: give --gpus or --gpus-of")
        if self.targets.latency and (self.survive or self.dollars or self.objective == "dollars"):
            raise InvalidInputError(
                "--ttft, --tbt, --e2e", "are not supported with --survive, --dollars and dollars: remove them"
            )

    def for_inputs(self, inputs: PlanInputs) -> PlanRequest:
        """Returns the request with its objective. Raises `InvalidInputError` if it does not fit the model."""
        _check_types(self.gpus_of, inputs)
        found = _with_objective(self, inputs)
        if self.targets.latency and found.objective == "dollars":
            raise InvalidInputError("--rate", "with latency targets needs options of one GPU type: give --gpus-of")
        return found


def _with_objective(request: PlanRequest, inputs: PlanInputs) -> PlanRequest:
    """Returns the request with its objective. Raises `InvalidInputError` if it would add GPUs of different types."""
    has_budget = request.budget != Budget()
    if request.objective == "dollars" and has_budget:
        raise InvalidInputError("--objective", "dollars needs a --rate; a budget in dollars is given by --dollars")
    types = usable_gpu_types(inputs.problem)
    listed = ", ".join(types)
    if len(types) > 1 and request.gpus is not None:
        raise InvalidInputError(
            "--gpus",
            f"GPUs of different types cannot be added ({listed}): give --gpus-of TYPE=N for each, or --dollars",
        )
    if request.objective == "goodput":
        return request
    objective = cost_objective(request.objective, inputs.problem)
    return request if has_budget and len(types) > 1 else replace(request, objective=objective)


def _check_types(names: Iterable[str], inputs: PlanInputs) -> None:
    known = sorted({option.gpu for option in inputs.graph.options if option.gpu})
    for name in names:
        if name not in known:
            types = f"its GPU types are {', '.join(known)}" if known else "its options do not name GPU types"
            raise InvalidInputError("--gpus-of", f"no option of {inputs.model.name} runs on {name!r}: {types}")
