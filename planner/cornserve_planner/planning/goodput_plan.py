"""Plans that meet latency targets, by replay: the most goodput within a budget, or the fewest GPUs for a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.goodput.candidates import PlanCandidate, find_candidates
from cornserve_planner.goodput.replay import Replay, ReplayedSystem, read_replayed
from cornserve_planner.goodput.search import FEW_REQUESTS, GoodputSearch, ReplayedCandidate
from cornserve_planner.goodput.stage_budgets import MeanTokens, budget_problem, with_budgets
from cornserve_planner.inputs.planning_inputs import PlanInputs
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.build import plan_file, planned_parts
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedLimits
from cornserve_planner.plan_file.provenance import PlanOrigin
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.simulation.executor_model import ExecutorModel, TokenExecutor, executor_models
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.cells import Cell
from cornserve_planner.solve.given_replicas import solve_replicas
from cornserve_planner.solve.optimization import max_rate, min_gpus

MORE_GPUS = 2.0
"""A rate gets at most this multiple of the GPUs that it needs without queues."""


@dataclass(frozen=True, slots=True)
class ReplayedPlan:
    """
    Args:
        inputs: with the utilization of the replicas at the goodput as their limit.
        candidates: the best one first.
        limits: by option with a step model, the limits of its steps.
        running: the goodput of the running replicas; None if none are given.
    """

    inputs: PlanInputs
    plan: Solution
    candidates: tuple[ReplayedCandidate, ...]
    limits: Mapping[str, PlannedLimits]
    running: float | None


class ReplayedProblem:
    """A planning problem with the requests to replay.

    Args:
        rate: the requests per second to serve; None for the budget of the request.
        count: the most requests; by default, all that decide among the best candidates.
    """

    def __init__(
        self,
        request: PlanRequest,
        inputs: PlanInputs,
        rate: float | None,
        origin: PlanOrigin,
        count: int | None = None,
    ) -> None:
        self._problem, self._parts, self._origin = inputs.problem, planned_parts(inputs, request.late_binding), origin
        targets = request.targets.latency
        targets.check_types(self._parts.types)
        self.most = max_rate(inputs.problem, request.budget) if rate is None else min_gpus(inputs.problem, rate)
        sample = self._plan_of(self.most.replicas)
        models = executor_models(sample, inputs.profile)
        if targets.least("tbt") is not None and not _has_tokens(inputs, models):
            raise InvalidInputError(
                "--tbt", "no option has a step model or a latency between tokens in the profile: measure it"
            )
        requests = read_replayed(sample, models, request.workload, count)
        self.replay = Replay(requests, targets)
        self.models = with_budgets(sample, models, MeanTokens.of(requests), targets)
        of_types = {name: MeanTokens.of(each for each in requests if each.kind == name) for name in self._parts.types}
        self.fluid = budget_problem(sample, self.models, of_types)
        """The problem with the seconds of requests at the budgets."""

    def system_of(self, candidate: PlanCandidate) -> ReplayedSystem:
        return ReplayedSystem(self._plan_of(candidate.replicas), self.models, candidate.bound)

    def goodput_of(self, replicas: Mapping[str, int], guess: float) -> float:
        """Returns the goodput of replicas with few requests; 0 if they do not serve all types.

        Args:
            guess: the rate that is tried first.
        """
        bound = capacity(self.fluid, replicas)[0]
        if not bound:
            return 0.0
        system, few = self.system_of(PlanCandidate("running", replicas, bound)), len(self.replay.requests)
        return self.replay.goodput(system, guess, 0, min(FEW_REQUESTS, few))

    def _plan_of(self, replicas: Mapping[str, int]) -> PlanFile:
        plan = solve_replicas(self._problem, replicas)
        cells = (Cell(plan.gpus, plan.capacity, plan),)
        return plan_file(self._parts, self._problem, cells, {plan.gpus: 1}, None, self._origin)


def plan_by_replay(
    request: PlanRequest, inputs: PlanInputs, rate: float | None, origin: PlanOrigin, on_progress: Callable[[str], None]
) -> ReplayedPlan:
    """
    Args:
        rate: the requests per second to serve on the fewest GPUs; None for the most goodput within the budget.

    Raises `InfeasibleError` if no candidate meets the targets.
    """
    replayed = ReplayedProblem(request, inputs, rate, origin)
    search = GoodputSearch(replayed.replay, replayed.system_of, on_progress)
    if rate is None:
        found = search.most_goodput(find_candidates(replayed.fluid, inputs.graph, request.budget))
    else:
        found = [_fewest_gpus(search, replayed.fluid, inputs, rate)]
    best = found[0]
    assert best.goodput is not None
    problem, replicas = inputs.problem, best.candidate.replicas
    limit = capacity(problem, replicas)[0]
    utilization = min(1.0, best.goodput.value / limit)
    limited = replace(problem, max_utilization=dict.fromkeys(problem.option, utilization))
    plan = solve_replicas(limited, replicas, max(each.candidate.bound for each in found))
    running = replayed.goodput_of(request.running, best.goodput.value) if request.running else None
    return ReplayedPlan(replace(inputs, problem=limited), plan, tuple(found), _limits(replayed.models), running)


def _fewest_gpus(search: GoodputSearch, fluid: PlanningProblem, inputs: PlanInputs, rate: float) -> ReplayedCandidate:
    least = min_gpus(fluid, rate).gpus
    for gpus in range(least, round(least * MORE_GPUS) + 2):
        if (found := search.serves(find_candidates(fluid, inputs.graph, Budget(gpus)), rate)) is not None:
            return found
    raise InfeasibleError(
        "the latency targets", f"no candidate with up to {gpus} GPUs meets them at {rate:g} requests/s: raise them"
    )


def _has_tokens(inputs: PlanInputs, models: Mapping[str, ExecutorModel]) -> bool:
    """Whether the seconds between two tokens are known for an option."""
    curves = any(batches.between_tokens is not None for batches in inputs.batches.values())
    return curves or any(isinstance(model, TokenExecutor) for model in models.values())


def _limits(models: Mapping[str, ExecutorModel]) -> dict[str, PlannedLimits]:
    return {
        name: PlannedLimits(
            max_num_batched_tokens=model.limits.max_num_batched_tokens, max_num_seqs=model.limits.max_num_seqs
        )
        for name, model in models.items()
        if isinstance(model, TokenExecutor)
    }
