"""Chooses batch sizes and maximum utilizations of options, so that memory and latency targets are met.

An option whose profile has a latency curve runs with one of the curve's batch sizes b. It then serves b / L(b) requests
per second, and by Little's law b requests are in flight, whose caches must fit next to the weights [C §7.3]. Targets
limit the utilization of the options on each path by the bound of `queueing`. A path that meets a target only at
a low utilization would limit the other paths that share its options. Therefore the search compares common limits, and
omits paths that need a lower utilization.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cornserve_planner.errors import InfeasibleError, InvalidInputError, require_positive
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.milp import MilpProgram
from cornserve_planner.solve.solver import SolverSettings, solve_program
from cornserve_planner.targets.option_batches import OptionBatches
from cornserve_planner.targets.queueing import highest_utilization

MOST_COMBINATIONS = 64
"""Up to this number of combinations of batch sizes, all are compared; otherwise, one option is changed at a time."""
COMPARISON_GPUS = 64
"""GPUs for which combinations are compared if the request has no budget."""


@dataclass(frozen=True, slots=True)
class LatencyTargets:
    """Seconds that at most a fraction of the requests exceed.

    Args:
        first_token: until the first token of the response (TTFT).
        between_tokens: between two tokens (TBT).
        request: until the end of the response.
        percentile: percentage of the requests that meet `first_token` and `request`.
    """

    first_token: float | None = None
    between_tokens: float | None = None
    request: float | None = None
    percentile: float = 95.0

    def __post_init__(self) -> None:
        for name, seconds in (("ttft", self.first_token), ("tbt", self.between_tokens), ("e2e", self.request)):
            if seconds is not None:
                require_positive(f"--{name}", seconds)
        if not 0 < self.percentile < 100:
            raise InvalidInputError("--percentile", f"must be between 0 and 100, not {self.percentile:g}")

    def __bool__(self) -> bool:
        """Returns whether there is a target."""
        return (self.first_token, self.between_tokens, self.request) != (None, None, None)

    @property
    def exceeding(self) -> float:
        return 1 - self.percentile / 100


@dataclass(frozen=True, slots=True)
class TargetedProblem:
    """A planning problem that meets the targets.

    Args:
        batches: the chosen batch size of each option with a latency curve.
        slowdown: by option, its seconds per request relative to the batch size with the highest rate.
        excluded: paths that cannot meet the targets, or not at a useful utilization, with the reason.
    """

    problem: PlanningProblem
    batches: Mapping[str, int]
    slowdown: Mapping[str, float]
    excluded: Mapping[str, str]


def meet_targets(
    problem: PlanningProblem,
    batches: Mapping[str, OptionBatches],
    targets: LatencyTargets | None = None,
    budget: Budget | None = None,
) -> TargetedProblem:
    """Chooses the batch sizes and limits of utilization with the highest rate without whole replicas.

    Args:
        problem: its seconds are those of each option's batch size with the highest rate.
        batches: by option; options without latency curve keep their seconds.
        budget: limits for the comparison.

    Raises `InfeasibleError` if no path of a type meets the targets.
    """
    targets = targets or LatencyTargets()
    search = _BatchSearch(problem, batches, targets, budget or Budget(gpus=COMPARISON_GPUS))
    return search.best()


class _BatchSearch:
    def __init__(
        self,
        problem: PlanningProblem,
        batches: Mapping[str, OptionBatches],
        targets: LatencyTargets,
        budget: Budget,
    ) -> None:
        self.problem, self.batches, self.targets, self.budget = problem, batches, targets, budget
        self.choices = {name: self._choices(name, option) for name, option in batches.items()}
        self.tried: dict[tuple[int | None, ...], tuple[float, TargetedProblem]] = {}

    def best(self) -> TargetedProblem:
        if not self.targets:
            fastest = {name: self._fastest(name) for name in self.choices}
            return self._targeted(self._with_batches(fastest), fastest)
        combinations = math.prod(len(choices) for choices in self.choices.values())
        if combinations <= MOST_COMBINATIONS:
            every = itertools.product(*self.choices.values())
            rate, found = max(
                (self._try(dict(zip(self.choices, sizes, strict=True))) for sizes in every), key=lambda item: item[0]
            )
        else:
            rate, found = self._climb()
        if rate <= 0:
            raise InfeasibleError("the latency targets", self._explain(found))
        return found

    def _climb(self) -> tuple[float, TargetedProblem]:
        """Changes one option's batch size at a time, as long as the rate rises."""
        sizes = {name: self._fastest(name) for name in self.choices}
        best = self._try(sizes)
        while True:
            neighbors = (
                {**sizes, name: size}
                for name, choices in self.choices.items()
                for size in choices
                if size != sizes[name]
            )
            nearby = max(((self._try(changed), changed) for changed in neighbors), key=lambda item: item[0][0])
            if nearby[0][0] <= best[0] * (1 + 1e-9):
                return best
            best, sizes = nearby

    def _choices(self, name: str, option: OptionBatches) -> list[int | None]:
        """Returns the batch sizes that an option may use; None if the option meets no target between tokens."""
        gpu = self.problem.gpus.get(self.problem.option[name].gpu or "")
        return list(option.fitting(None if gpu is None else gpu.memory, self.targets.between_tokens)) or [None]

    def _fastest(self, name: str) -> int | None:
        return max(self.choices[name], key=lambda size: -1.0 if size is None else self.batches[name].rate(size))

    def _try(self, sizes: Mapping[str, int | None]) -> tuple[float, TargetedProblem]:
        key = tuple(sizes.values())
        if key not in self.tried:
            self.tried[key] = self._evaluate(sizes)
        return self.tried[key]

    def _evaluate(self, sizes: Mapping[str, int | None]) -> tuple[float, TargetedProblem]:
        scaled = self._with_batches(sizes)
        limits = [self._limit(path, sizes) for path in scaled.paths]
        useful = sorted({limit for limit, _ in limits if limit > 0})
        found = [self._at(scaled, sizes, limits, least) for least in useful]
        if not found:
            excluded = {path.name: reason for path, (_, reason) in zip(scaled.paths, limits, strict=True)}
            return 0.0, self._targeted(scaled, sizes, excluded)
        return max(found, key=lambda item: item[0])

    def _at(
        self,
        problem: PlanningProblem,
        sizes: Mapping[str, int | None],
        limits: list[tuple[float, str]],
        least: float,
    ) -> tuple[float, TargetedProblem]:
        """Keeps the paths that allow at least this utilization, and those of types without requests."""
        kept, excluded, utilization = [], {}, dict(problem.max_utilization)
        for path, (limit, reason) in zip(problem.paths, limits, strict=True):
            planned = problem.shares[path.type] > 0
            if planned and limit < least:
                excluded[path.name] = reason
                continue
            kept.append(path)
            if not planned:
                continue
            for option in path.seconds:
                utilization[option] = min(utilization.get(option, 1.0), limit)
        limited = replace(problem, paths=tuple(kept), max_utilization=utilization)
        return _fractional_rate(limited, self.budget), self._targeted(limited, sizes, excluded)

    def _with_batches(self, sizes: Mapping[str, int | None]) -> PlanningProblem:
        slowdown, memory = self._slowdown(sizes), dict(self.problem.memory)
        for name, size in sizes.items():
            option = self.batches[name]
            if (needed := option.memory(size or option.request.batch[0])) is not None:
                memory[name] = needed
        paths = (
            replace(path, seconds={name: each * slowdown.get(name, 1.0) for name, each in path.seconds.items()})
            for path in self.problem.paths
        )
        return replace(self.problem, paths=tuple(paths), memory=memory)

    def _slowdown(self, sizes: Mapping[str, int | None]) -> dict[str, float]:
        return {name: self.batches[name].slowdown(size) for name, size in sizes.items()}

    def _targeted(
        self, problem: PlanningProblem, sizes: Mapping[str, int | None], excluded: Mapping[str, str] | None = None
    ) -> TargetedProblem:
        chosen = {name: size for name, size in sizes.items() if size is not None}
        return TargetedProblem(problem, chosen, self._slowdown(sizes), excluded or {})

    def _limit(self, path: RequestPath, sizes: Mapping[str, int | None]) -> tuple[float, str]:
        """Returns the utilization up to which a path meets all targets, and the reason for a limit below 1."""
        limits = [(1.0, "")]
        targets = self.targets
        limits += [
            (0.0, f"{name} exceeds {targets.between_tokens:g} s between tokens at every batch size")
            for name in path.seconds
            if name in sizes and sizes[name] is None
        ]
        tokens = [name for name in path.seconds if name in self.batches and self.batches[name].between_tokens]
        if targets.between_tokens is not None and not tokens:
            limits.append((0.0, "no option has a latency between tokens in the profile: measure it"))
        for target, first in ((targets.first_token, True), (targets.request, False)):
            if target is not None:
                limits.append(self._limit_of(list(path.seconds), sizes, target, first_token=first))
        return min(limits)

    def _limit_of(
        self, options: list[str], sizes: Mapping[str, int | None], target: float, *, first_token: bool
    ) -> tuple[float, str]:
        servers = []
        for name in options:
            if name not in self.batches:
                return 0.0, f"{name} has no latency in the profile: measure it"
            option = self.batches[name]
            servers.append(option.server(sizes[name] or option.request.batch[0], first_token=first_token))
            if first_token and option.first_token is not None:
                break
        limit = highest_utilization(servers, target, self.targets.exceeding)
        what = "first token" if first_token else "complete response"
        if limit > 0:
            return min(limit, 1.0), f"the {what} within {target:g} s limits its options to {limit:.0%}"
        least = sum(server.least for server in servers)
        return 0.0, f"the {what} takes up to {least:.3g} s even without load, more than {target:g} s"

    def _explain(self, found: TargetedProblem) -> str:
        reasons = [f"{path}: {reason}" for path, reason in found.excluded.items()]
        reasons += found.problem.excluded.values()
        return f"no plan serves all types within them: {'; '.join(reasons)}"


def _fractional_rate(problem: PlanningProblem, budget: Budget) -> float:
    served = {path.type for path in problem.usable}
    if any(share > 0 and kind not in served for kind, share in problem.shares.items()):
        return 0.0
    program = MilpProgram(problem.without_utilization_limits, budget, whole=False)
    outcome = solve_program(program.maximize_rate(), SolverSettings(), relaxed=True)
    return program.solved_rate() if outcome.proven else 0.0
