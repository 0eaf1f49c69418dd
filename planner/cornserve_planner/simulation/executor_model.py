"""The models by which the executors of a plan are simulated, from the plan and a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import PlannedOption
from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, OptionProfile
from cornserve_planner.simulation.media_replica import ServiceCurve
from cornserve_planner.simulation.step_model import EngineLimits, StepModel

MOST_CONCURRENT = 4096
"""The largest batch size of a curve."""


@dataclass(frozen=True, slots=True)
class TokenExecutor:
    """An executor that generates tokens in steps.

    Args:
        encoding: the tokens of a prompt that take as long as encoding a token of media.
    """

    model: StepModel
    limits: EngineLimits
    encoding: float = 0.0


@dataclass(frozen=True, slots=True)
class CurveExecutor:
    """An executor with a curve of latencies.

    Args:
        seconds_per_request: seconds of a replica's time for a request of mean size, at the plan's batch size, or at the
            fastest one.
        joins: whether requests join a running batch.
        first_part: the part of its time after which a request has its first output.
        source: the origin of the curve, for users.
    """

    curve: ServiceCurve
    seconds_per_request: float
    joins: bool
    first_part: float
    source: str


ExecutorModel = TokenExecutor | CurveExecutor


def executor_models(plan: PlanFile, profile: ModelProfile | None) -> dict[str, ExecutorModel]:
    """Returns the model of each option of a plan.

    With a profile, an option has its step model or its latency curve, as far as the profile has one. Otherwise, a
    replica serves the plan's batch of requests at a time, and each takes as long as the plan's rate requires.

    Raises `InvalidInputError` for a profile of another model.
    """
    if profile is not None and profile.model not in plan.models:
        raise InvalidInputError(
            "--profile", f"is for {profile.model!r}, but the plan serves {', '.join(plan.models)}: give its profile"
        )
    return {name: _model(plan, name, option, profile) for name, option in plan.options.items()}


def startup_times(plan: PlanFile, profile: ModelProfile | None) -> dict[str, tuple[float, ...]]:
    """Returns the measured start-up times of each option, as far as the profile has them."""
    entries = {name: _entry(name, option, profile) for name, option in plan.options.items()}
    return {name: entry.startup_times for name, entry in entries.items() if entry is not None and entry.startup_times}


def _model(plan: PlanFile, name: str, option: PlannedOption, profile: ModelProfile | None) -> ExecutorModel:
    entry = _entry(name, option, profile)
    if entry is not None and entry.step is not None:
        step = entry.step
        model = StepModel(step.fixed, step.weights, step.per_token, step.per_sequence, step.per_context_token)
        limits = EngineLimits(
            step.max_num_seqs, step.max_num_batched_tokens, step.cache_tokens // step.block_size, step.block_size
        )
        return TokenExecutor(model, limits, step.per_media_token / step.per_token if step.per_media_token else 0.0)
    curves: dict[str, BatchLatency] = {}
    for curve in reversed(() if entry is None else entry.latency):
        curves[curve.measures] = curve
    if profile is not None and "request" in curves:
        try:
            return _curve_executor(curves, option.batch)
        except InvalidInputError as error:
            raise error.within(f"profile of {profile.model}: options.{name}.latency") from error
    needed = _mean_seconds(plan, name)
    batch = _checked_batch(f"options.{name}.batch", option.batch or 1)
    return CurveExecutor(ServiceCurve.constant(batch * needed, batch), needed, True, 1.0, "seconds of the plan")


def _entry(name: str, option: PlannedOption, profile: ModelProfile | None) -> OptionProfile | None:
    """Returns the entry of an option. A variant with more GPUs is profiled under the name of its option."""
    for entry in () if profile is None else profile.options:
        names = (entry.option, f"{entry.option}-tp{entry.gpus}")
        if name in names and entry.gpus == option.gpus and option.gpu_type in (None, entry.gpu):
            return entry
    return None


def _curve_executor(curves: Mapping[str, BatchLatency], batch: int | None) -> CurveExecutor:
    """Returns the executor of an option's curves. The seconds of a plan are those at its batch size, if it has one."""
    measured = curves["request"]
    seconds = _interpolated(measured, batch)
    if batch:
        per_request = seconds[-1] / batch
    else:
        per_request = min(each / size for size, each in zip(measured.batch, measured.seconds, strict=True))
    first = curves.get("first_token")
    part = 1.0 if first is None else min(1.0, first.seconds[-1] / measured.at(first.batch[-1]))
    return CurveExecutor(ServiceCurve(seconds), per_request, len(curves) > 1, part, f"latency curve, {measured.tag}")


def _interpolated(curve: BatchLatency, batch: int | None) -> list[float]:
    """Returns the seconds at each number of requests, up to the plan's batch size or the largest measured one."""
    most = _checked_batch("batch", batch or curve.batch[-1])
    return [curve.seconds[0] if size < curve.batch[0] else curve.at(size) for size in range(1, most + 1)]


def _checked_batch(where: str, batch: int) -> int:
    if batch > MOST_CONCURRENT:
        raise InvalidInputError(where, f"is a batch of {batch}: at most {MOST_CONCURRENT} requests are simulated")
    return batch


def _mean_seconds(plan: PlanFile, option: str) -> float:
    """Returns the mean seconds of an option's steps. Types with a larger share count more."""
    weights, total = 0.0, 0.0
    for kind in plan.types.values():
        for path in kind.paths:
            for step in path.steps:
                if step.option == option:
                    weight = kind.share + 1e-9
                    weights += weight
                    total += weight * step.seconds
    return total / weights if weights else 1.0


def describe_models(models: Mapping[str, ExecutorModel]) -> dict[str, str]:
    """Returns, by option, how it is simulated, for users."""
    return {name: "step model" if isinstance(model, TokenExecutor) else model.source for name, model in models.items()}
