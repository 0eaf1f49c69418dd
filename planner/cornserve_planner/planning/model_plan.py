"""One run of the planner: takes a `PlanRequest`, returns a `PlanResult`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from cornserve_planner.errors import InfeasibleError, InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs, load_inputs
from cornserve_planner.inputs.service_targets import with_targets
from cornserve_planner.model.solution import Solution
from cornserve_planner.plan_file.build import plan_file, planned_parts
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.provenance import PlanOrigin, plan_origin
from cornserve_planner.planning.confidence import PlanConfidence, estimate_sources, plan_confidence
from cornserve_planner.planning.goodput_plan import plan_by_replay
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.planning.result import PlanResult, RunningCell
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cells import Cell, Mixture, fewest_gpus, most_requests, solve_cells
from cornserve_planner.solve.explanation import explain_plan
from cornserve_planner.solve.optimization import max_rate, min_dollars, min_gpus
from cornserve_planner.solve.solver import SolverEngine, SolverSettings

ProgressCallback = Callable[[int, int, str], None]
"""Receives the number of finished steps, the number of all steps, and a description of the next step."""

DIRECT_GPUS = 64
"""Up to this many GPUs, a plan without cells is found fast enough to show for comparison."""

CELL_LOSS = 0.01
"""Relative loss of rate that is accepted for cells, which later loads can add and remove, instead of one plan."""


def make_plan(request: PlanRequest, progress: ProgressCallback = lambda done, total, what: None) -> PlanResult:
    """Loads the inputs and solves the request.

    Raises `InvalidInputError`, `InfeasibleError` or `NoPlanFoundError`.
    """
    request.check()
    inputs = load_inputs(request.model, request.workload, request.profile, request.gpu_types, request.factors)
    request = request.for_inputs(inputs)
    inputs = with_targets(inputs, request.targets)
    rate = request.rate if request.has_budget or request.rate else inputs.workload.rate
    if request.has_budget == (rate is not None):
        raise InvalidInputError("--gpus, --rate", "give exactly one: a budget (--gpus, --dollars) or a target rate")
    solver = SolverSettings(SolverEngine(request.solver), request.time_limit)
    search = _PlanSearch(request, inputs, rate, solver, progress)
    if request.targets.latency:
        return search.replay()
    return search.plan_whole() if request.needs_one_plan else search.plan_cells()


@dataclass(frozen=True, slots=True)
class _PlanSearch:
    """
    Args:
        rate: the target; None for a budget.
    """

    request: PlanRequest
    inputs: PlanInputs
    rate: float | None
    solver: SolverSettings
    progress: ProgressCallback

    def plan_whole(self) -> PlanResult:
        """Returns one plan for all GPUs."""
        request, problem, budget = self.request, self.inputs.problem, self.request.budget
        if self.rate is None:
            return self._one_plan(max_rate(problem, budget, self.solver, request.survive), budget)
        minimize = min_dollars if request.objective == "dollars" else min_gpus
        plan = minimize(problem, self.rate, budget, self.solver, request.survive)
        return self._one_plan(
            plan, Budget(dollars=plan.dollars) if request.objective == "dollars" else Budget(plan.gpus)
        )

    def replay(self) -> PlanResult:
        """Returns one plan that meets the latency targets in simulations."""
        steps = count()

        def update(what: str) -> None:
            self.progress(next(steps), 0, what)

        found = plan_by_replay(self.request, self.inputs, self.rate, self._origin, update)
        search = replace(self, inputs=found.inputs)
        result = search._one_plan(found.plan, self.request.budget)
        return replace(
            result,
            file=result.file.with_limits(found.limits),
            candidates=found.candidates,
            running_goodput=found.running,
        )

    def plan_cells(self) -> PlanResult:
        """Returns a mixture of cells. If one plan serves notably more than cells, returns that plan."""
        whole = max_rate(self.inputs.problem, self.request.budget, self.solver) if self._compares_with_whole else None
        try:
            cells = self._solve_cells()
            mixture = self._mixture(cells)
        except InfeasibleError:
            if whole is None:
                raise
            return self._one_plan(whole, self.request.budget)
        if whole is not None and mixture.rate * (1 + CELL_LOSS) < whole.rate:
            return self._one_plan(whole, self.request.budget)
        return self._mixture_of_cells(cells, mixture)

    @property
    def _compares_with_whole(self) -> bool:
        """Whether the budget is not a power of two, so that cells may serve notably less than one plan.

        Larger budgets than the largest cell are not compared: they are served by many cells, which lose little.
        """
        gpus = self.request.gpus
        return bool(gpus and gpus <= self.request.largest_cell and gpus & (gpus - 1))

    def _solve_cells(self) -> Sequence[Cell]:
        request = self.request
        largest = request.largest_cell if request.gpus is None else min(request.largest_cell, request.gpus)
        sizes = 1 + math.floor(math.log2(largest))
        self.progress(0, sizes, "Cell of 1 GPU")
        done = iter(range(1, sizes + 1))
        return solve_cells(
            self.inputs.problem,
            largest,
            self.solver,
            lambda cell: self.progress(next(done), sizes, f"Cell of {2 * cell.gpus} GPUs"),
        )

    def _mixture(self, cells: Sequence[Cell]) -> Mixture:
        if self.request.gpus is None and self.rate:
            return fewest_gpus(cells, self.rate)
        return most_requests(cells, self.request.gpus or 0)

    def _mixture_of_cells(self, cells: Sequence[Cell], mixture: Mixture) -> PlanResult:
        plans = {cell.gpus: cell.plan for cell in cells}
        running = [
            RunningCell(count, gpus, plan)
            for gpus, count in sorted(mixture.counts.items(), reverse=True)
            if (plan := plans[gpus]) is not None
        ]
        problem, direct = self.inputs.problem, None
        if self.rate and mixture.gpus <= DIRECT_GPUS:
            direct = min_gpus(problem, self.rate, solver=self.solver)
        return PlanResult(
            inputs=self.inputs,
            cells=tuple(cells),
            running=tuple(running),
            explanations=tuple(explain_plan(problem, cell.plan, Budget(gpus=cell.gpus)) for cell in running),
            file=self._file(cells, mixture.counts),
            confidence=self._confidence(running, Budget(gpus=mixture.gpus)),
            direct=direct,
        )

    def _one_plan(self, plan: Solution, limit: Budget) -> PlanResult:
        """Returns the result of a plan without cells. `limit`: the budget with which other plans are compared."""
        cells = (Cell(plan.gpus, plan.capacity, plan),)
        running = (RunningCell(1, plan.gpus, plan),)
        return PlanResult(
            inputs=self.inputs,
            cells=cells,
            running=running,
            explanations=(explain_plan(self.inputs.problem, plan, self.request.budget),),
            file=self._file(cells, {plan.gpus: 1}),
            confidence=self._confidence(running, limit),
            whole=True,
        )

    def _confidence(self, running: Sequence[RunningCell], budget: Budget) -> PlanConfidence:
        sources = estimate_sources(self.inputs, self.request.factors)
        plans = [(cell.count, cell.plan) for cell in running]
        return plan_confidence(
            self.inputs.problem, self.inputs, sources, plans, budget, every_option=self.request.explain
        )

    def _file(self, cells: Sequence[Cell], counts: Mapping[int, int]) -> PlanFile:
        inputs = self.inputs
        parts = planned_parts(inputs, self.request.late_binding)
        return plan_file(parts, inputs.problem, tuple(cells), counts, self.rate, self._origin)

    @property
    def _origin(self) -> PlanOrigin:
        request = self.request
        return plan_origin(
            self.inputs, request.model, request.workload, request.profile, request.gpu_types,
            factors=request.factors, options=request.fields,
        )  # fmt: skip
