"""Plans several models that share executors, with a rate for each: one plan with the lowest cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from cornserve_planner.conversion.size_costs import Draws
from cornserve_planner.errors import InvalidInputError, require_positive
from cornserve_planner.inputs.planning_inputs import PlanInputs, load_inputs
from cornserve_planner.inputs.service_targets import ServiceTargets, with_targets
from cornserve_planner.model.graph import PathStep, RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.build import plan_file, planned_parts
from cornserve_planner.plan_file.document import PlanFile, planning_problem
from cornserve_planner.plan_file.parts import Provenance
from cornserve_planner.plan_file.provenance import PlanOrigin, plan_origin
from cornserve_planner.planning.confidence import EstimateSource, PlanConfidence, estimate_sources, plan_confidence
from cornserve_planner.planning.cost_objective import cost_objective
from cornserve_planner.planning.joint_problem import JointProblem, join_problems, joint_name
from cornserve_planner.planning.result_document import result_document
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cells import Cell
from cornserve_planner.solve.explanation import PlanExplanation, explain_plan
from cornserve_planner.solve.optimization import min_dollars, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings
from cornserve_planner.solve.time_limit import DEFAULT_TIME_LIMIT


@dataclass(frozen=True, slots=True)
class ModelRate:
    """The requests per second of a model, and its files; None for shipped ones."""

    model: str
    rate: float
    profile: Path | None = None
    workload: Path | None = None

    @classmethod
    def parse(cls, setting: str, rate: float) -> ModelRate:
        """Parses `MODEL` or `MODEL,PROFILE,WORKLOAD`. Raises `InvalidInputError` for other forms."""
        require_positive(f"--model-rate {setting}", rate)
        match setting.split(","):
            case [model] if model:
                return cls(model, rate)
            case [model, profile, workload] if model and profile and workload:
                return cls(model, rate, Path(profile), Path(workload))
        raise InvalidInputError(
            "--model-rate", f"must be MODEL=RATE or MODEL,PROFILE,WORKLOAD=RATE, not {setting}={rate:g}"
        )

    def load(self, gpu_types: Path | None) -> PlanInputs:
        try:
            return load_inputs(self.model, self.workload, self.profile, gpu_types)
        except InvalidInputError as error:
            if self.profile is None and error.where in ("profile", "workload"):
                raise InvalidInputError(
                    "--model-rate", f"{self.model} has no shipped {error.where}: write MODEL,PROFILE,WORKLOAD=RATE"
                ) from error
            raise


@dataclass(frozen=True, slots=True)
class JointRequest:
    """The options of the command.

    Args:
        gpus_of: limits of GPUs by type.
        objective: the cost to minimize. Default: GPUs, or dollars for several GPU types.
    """

    models: tuple[ModelRate, ...]
    gpus_of: Mapping[str, int] = field(default_factory=dict)
    gpu_types: Path | None = None
    objective: str | None = None
    targets: ServiceTargets = field(default_factory=ServiceTargets)
    solver: str = "highs"
    time_limit: float = DEFAULT_TIME_LIMIT
    explain: bool = False


@dataclass(frozen=True, slots=True)
class JointPlan:
    """
    Args:
        rates: the requested requests per second of each model.
    """

    rates: Mapping[str, float]
    problem: PlanningProblem
    plan: Solution
    explanation: PlanExplanation
    file: PlanFile
    confidence: PlanConfidence

    def as_document(self) -> dict[str, Any]:
        return result_document(self.file, [self.explanation], None, self.confidence)


def plan_models(request: JointRequest) -> JointPlan:
    """Loads the inputs and finds the plan that serves all rates at the lowest cost.

    Raises `InvalidInputError`, `InfeasibleError` or `NoPlanFoundError`.
    """
    inputs: dict[str, PlanInputs] = {}
    rates: dict[str, float] = {}
    budget = Budget(gpus_of=request.gpus_of)
    for model in request.models:
        loaded = with_targets(model.load(request.gpu_types), request.targets)
        name = loaded.model.name
        if name in inputs:
            raise InvalidInputError("--model-rate", f"the model {name!r} is given twice: remove one of them")
        inputs[name], rates[name] = loaded, model.rate
    joint = join_problems({name: planned_parts(each) for name, each in inputs.items()}, rates)
    problem = planning_problem(joint.parts.options, joint.parts.types, joint.parts.gpu_types)
    known = sorted({option.gpu for option in problem.options if option.gpu})
    for gpu in request.gpus_of:
        if gpu not in known:
            raise InvalidInputError("--gpus-of", f"no option runs on {gpu!r}: use one of {', '.join(known)}")
    solver, rate = SolverSettings(SolverEngine(request.solver), request.time_limit), math.fsum(rates.values())
    in_dollars = cost_objective(request.objective, problem) == "dollars"
    plan = (min_dollars if in_dollars else min_gpus)(problem, rate, budget, solver)
    file = plan_file(
        joint.parts,
        problem,
        (Cell(plan.gpus, plan.capacity, plan),),
        {plan.gpus: 1},
        rate,
        _origin(request, inputs, joint),
    )
    limit = Budget(dollars=plan.dollars) if in_dollars else Budget(plan.gpus)
    confidence = plan_confidence(problem, *_estimates(inputs, joint), [(1, plan)], limit, every_option=request.explain)
    return JointPlan(rates, problem, plan, explain_plan(problem, plan, budget), file, confidence)


def _estimates(inputs: Mapping[str, PlanInputs], joint: JointProblem) -> tuple[_JointTimes, dict[str, EstimateSource]]:
    """Returns the times of all models, and the least certain source of each option."""
    sources: dict[str, EstimateSource] = {}
    for model, each in inputs.items():
        for option, source in estimate_sources(each, {}).items():
            name = joint.names[model][option]
            if name not in sources or sources[name].certain:
                sources[name] = source
    return _JointTimes(inputs, joint), sources


class _JointTimes:
    """The seconds of steps, which are those of their own model."""

    def __init__(self, inputs: Mapping[str, PlanInputs], joint: JointProblem) -> None:
        self._kinds = {
            joint_name(model, kind.name): (model, kind)
            for model, each in inputs.items()
            for kind in each.workload.shares
        }
        self._options = {
            model: {joined: name for name, joined in names.items()} for model, names in joint.names.items()
        }
        self._inputs = inputs
        self.types = tuple(RequestType(name, kind.components) for name, (_, kind) in self._kinds.items())

    def drawn(self, kind: RequestType, step: PathStep) -> Draws:
        model, own = self._kinds[kind.name]
        role = tuple(name.removeprefix(joint_name(model, "")) for name in step.role)
        return self._inputs[model].drawn(own, PathStep(self._options[model][step.option], role))


def _origin(request: JointRequest, inputs: Mapping[str, PlanInputs], joint: JointProblem) -> PlanOrigin:
    options: dict[str, JsonValue] = {
        "model_rate": {name: model.rate for name, model in zip(inputs, request.models, strict=True)},
        "gpus_of": dict(request.gpus_of),
        "objective": request.objective,
        "solver": request.solver,
        "time_limit": request.time_limit,
        "utilization": request.targets.utilization,
        "robust": request.targets.robust,
    }
    found = {
        name: plan_origin(
            each, model.model, model.workload, model.profile, request.gpu_types, factors={}, options=options
        )
        for (name, each), model in zip(inputs.items(), request.models, strict=True)
    }
    rates = tuple(
        rate.model_copy(update={"option": joint.names[name][rate.option]})
        for name, each in found.items()
        for rate in each.provenance.rates
    )
    return PlanOrigin(
        inputs=tuple(dict.fromkeys(file for each in found.values() for file in each.inputs)),
        provenance=Provenance(rates=rates, factors={}, options=options),
    )
