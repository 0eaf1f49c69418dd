"""Token budgets of engine steps that meet latency targets, and the seconds of requests at these budgets [T Alg. 1, 2].

A step of an executor that decodes takes at most the target between tokens (TBT), and a step of another one at most
a part of the target until the first token (TTFT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedLimits, PlannedOption
from cornserve_planner.simulation.executor_model import ExecutorModel, TokenExecutor
from cornserve_planner.simulation.path_stages import PathStage, path_stages, shared_executors
from cornserve_planner.simulation.simulated_request import SimulatedRequest

LEAST_TOKENS = 16


@dataclass(frozen=True, slots=True)
class MeanTokens:
    """The mean tokens of requests."""

    text: float
    media: float
    output: float

    @classmethod
    def of(cls, requests: Iterable[SimulatedRequest]) -> MeanTokens | None:
        """Returns None if the tokens of a request are unknown."""
        count = text = media = output = 0
        for request in requests:
            if request.text is None or request.media is None or request.output is None:
                return None
            count, text, media = count + 1, text + request.text, media + request.media
            output += request.output
        return cls(text / count, media / count, output / count) if count else None

    @property
    def prompt(self) -> float:
        return max(1.0, self.text + self.media)

    @property
    def context(self) -> float:
        """The mean tokens of a sequence that generates."""
        return self.prompt + self.output / 2


def all_stages(plan: PlanFile, models: Mapping[str, ExecutorModel]) -> dict[str, list[list[PathStage]]]:
    """Returns the stages of each path, by type."""
    executors = shared_executors(plan)
    return {
        name: [path_stages(plan, kind.components, path, models, executors, frozenset()) for path in kind.paths]
        for name, kind in plan.types.items()
    }


def with_budgets(
    plan: PlanFile, models: Mapping[str, ExecutorModel], mean: MeanTokens | None, targets: GoodputTargets
) -> dict[str, ExecutorModel]:
    """Returns the executors with step limits that meet the targets. Executors without a step model stay as they are.

    Limits that the settings of an option contain remain.

    Args:
        mean: the mean tokens of all requests. None if they are unknown: the limits of the profile remain.
    """
    if mean is None:
        return dict(models)
    roles: dict[str, set[str]] = {}
    for paths in all_stages(plan, models).values():
        for stage in (stage for path in paths for stage in path):
            roles.setdefault(stage.option, set()).add(stage.role)
    return {
        name: _limited(model, roles.get(name, set()), mean, targets, _set_limits(plan.options[name]))
        if isinstance(model, TokenExecutor)
        else model
        for name, model in models.items()
    }


def budget_problem(
    plan: PlanFile, models: Mapping[str, ExecutorModel], of_types: Mapping[str, MeanTokens | None]
) -> PlanningProblem:
    """Returns the planning problem with the seconds of requests at the budgets, of which a plan uses all.

    Args:
        of_types: the mean tokens of the requests of each type.
    """
    stages = [path for paths in all_stages(plan, models).values() for path in paths]
    planned = [(name, path) for name, kind in plan.types.items() for path in kind.paths]
    paths = []
    for request_path, path_of_stages, (kind, path) in zip(plan.problem.paths, stages, planned, strict=True):
        seconds: dict[str, float] = {}
        for stage, step in zip(path_of_stages, path.steps, strict=True):
            model, mean = models[stage.executor], of_types.get(kind)
            if isinstance(model, TokenExecutor) and mean is not None:
                each = _stage_seconds(model, stage, mean)
            else:
                each = step.seconds
            seconds[step.option] = seconds.get(step.option, 0.0) + each
        paths.append(replace(request_path, seconds=seconds))
    return replace(plan.problem, paths=tuple(paths), max_utilization={})


def _set_limits(option: PlannedOption) -> dict[str, int]:
    """Returns the limits of steps that the settings of an option contain."""
    options = option.settings.get("options")
    known = options.items() if isinstance(options, dict) else ()
    return {name: value for name, value in known if name in PlannedLimits.model_fields and isinstance(value, int)}


def _limited(
    model: TokenExecutor, roles: set[str], mean: MeanTokens, targets: GoodputTargets, given: Mapping[str, int]
) -> TokenExecutor:
    step, limits = model.model, model.limits
    tokens, sequences = limits.max_num_batched_tokens, limits.max_num_seqs
    if roles & {"llm", "decode"}:
        held = int(limits.cache_blocks * limits.block_size / mean.context)
        sequences = max(1, min(sequences, held))
        if (tbt := targets.least("tbt")) is not None:
            context = mean.context
            sequences = _largest(sequences, lambda count: step.seconds(count, count, round(count * context)) <= tbt)
            sequences = given.get("max_num_seqs", sequences)
            running = max(1, sequences // 2)
            tokens = _largest(tokens, lambda count: step.seconds(count, running, round(running * context)) <= tbt)
    elif (most := targets.step_seconds) is not None:
        tokens = _largest(tokens, lambda count: step.seconds(count, 1, 0) <= most)
    tokens = min(limits.max_num_batched_tokens, max(tokens, sequences + 1, LEAST_TOKENS))
    tokens = given.get("max_num_batched_tokens", tokens)
    sequences = given.get("max_num_seqs", min(sequences, tokens - 1))
    tokens = max(tokens, sequences + 1)
    return replace(model, limits=replace(limits, max_num_batched_tokens=tokens, max_num_seqs=sequences))


def _stage_seconds(model: TokenExecutor, stage: PathStage, mean: MeanTokens) -> float:
    """Returns the seconds of a replica's time for the mean request, in full steps."""
    step, tokens, sequences = model.model, model.limits.max_num_batched_tokens, model.limits.max_num_seqs
    encoded = ceil(mean.media * stage.encoding)
    if not stage.role:
        return step.seconds(tokens, 1, 0) / tokens * max(1, encoded)
    prefill = (mean.prompt + encoded) * step.seconds(tokens, 1, 0) / tokens
    if stage.role == "prefill":
        return prefill
    token = step.seconds(sequences, sequences, round(sequences * mean.context)) / sequences
    if stage.role == "decode":
        return max(1.0, mean.output - 1) * token
    return (mean.prompt + encoded) * step.per_token + mean.output * token


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Returns the largest number from 1 to `most` that fits, by binary search; 1 if none does."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
