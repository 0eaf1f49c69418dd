"""Converts results to the planner's profile of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from cornserve.profiler.results import MixMeasurement, OptionResults, StartSummary
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.document import ExecutorTask
from cornserve_planner.profiles.profile import (
    MAX_STARTS,
    BatchLatency,
    MeasuredWith,
    MixEntry,
    ModelProfile,
    OptionProfile,
    StepSeconds,
    Throughput,
)
from cornserve_planner.profiles.sourced_value import SourcedValue
from cornserve_planner.simulation.step_fit import fit_steps
from cornserve_tasklib.llm import LLMTask

MIN_LEVELS = 3
"""The numbers of requests in flight from which a step model follows."""

MIN_ERROR = 0.001
"""The smallest relative standard error: the planner's times are never exact."""


def model_profile(
    app: str,
    options: Mapping[str, OptionResults],
    components: Mapping[str, tuple[str, ...]],
    *,
    with_steps: bool = False,
) -> ModelProfile:
    """Returns the profile of an app.

    Args:
        options: results by option name, each with at least one measurement.
        components: the components of each option.
        with_steps: whether whole language models have step models, where the measurements determine them.
    """
    return ModelProfile(
        model=app,
        note="measured by cornserve profile",
        options=tuple(
            _option(name, results, components[name], with_steps=with_steps) for name, results in options.items()
        ),
    )


def _option(name: str, results: OptionResults, components: tuple[str, ...], *, with_steps: bool) -> OptionProfile:
    conditions = results.conditions
    source = f"cornserve profile on {conditions.hardware}"
    startup = None
    if results.startup:
        starts = StartSummary.of(results.startup)
        known = f"{source}, median of {starts.starts} starts, 95th percentile {starts.p95:.3g} s"
        startup = SourcedValue(value=starts.median, unit="seconds", tag="measured", source=known)
    return OptionProfile(
        option=name,
        gpu=conditions.device,
        gpus=max(1, results.spec.gpus),
        executor=ExecutorTask(task=results.task, settings=dict(results.settings)),
        measured_with=MeasuredWith(
            model=conditions.model,
            versions=dict(conditions.versions),
            hardware=conditions.hardware,
            driver=conditions.driver,
            date=max(measured.date for measured in results.measurements),
        ),
        throughput=tuple(_throughput(measured, components, source) for measured in results.measurements),
        startup=startup,
        startup_times=results.startup[-MAX_STARTS:],
        latency=tuple(_latencies(results, components, source)),
        step=_step(name, results, components, source) if with_steps else None,
    )


def _throughput(measured: MixMeasurement, components: tuple[str, ...], source: str) -> Throughput:
    mix = tuple(MixEntry(components=entry.components, share=entry.share) for entry in measured.mix)
    return Throughput(
        rate=SourcedValue(value=measured.rate, unit="requests/s", tag="measured", source=f"{source}, {measured.date}"),
        error=min(2.0, max(MIN_ERROR, measured.standard_error)),
        mix=() if _needs_all(measured, components) else mix,
        requests=f"requests {measured.requests}",
    )


def _needs_all(measured: MixMeasurement, components: tuple[str, ...]) -> bool:
    return len(measured.mix) == 1 and set(measured.mix[0].components) == set(components)


def _step(name: str, results: OptionResults, components: tuple[str, ...], source: str) -> StepSeconds | None:
    """Returns the step model of a language model in one component: others take time that tokens do not determine."""
    if results.task != LLMTask.__name__ or len(components) > 1:
        return None
    for measured in results.measurements:
        if measured.tokens is None:
            continue
        tokens = measured.tokens
        # With more requests in flight, some wait for a place in the batch or in the KV cache.
        limit = min(tokens.max_num_seqs, tokens.cache_tokens // (tokens.prompt + tokens.generated))
        levels = [level for level in measured.levels if level.concurrency <= limit]
        if len(levels) < MIN_LEVELS:
            continue
        curve = BatchLatency(
            batch=tuple(level.concurrency for level in levels),
            seconds=tuple(level.seconds for level in levels),
            tag="measured",
            source=f"{source}, {measured.date}",
        )
        try:
            step = fit_steps(name, curve, tokens.prompt, tokens.generated, tokens.cache_tokens)
            limits = tokens.model_dump(exclude={"prompt", "generated"})
            return StepSeconds.model_validate(step.model_dump() | limits)
        except (InvalidInputError, ValidationError):  # The curve does not grow like steps of an engine.
            continue
    return None


def _latencies(results: OptionResults, components: tuple[str, ...], source: str) -> Iterator[BatchLatency]:
    for measured in results.measurements:
        if _needs_all(measured, components):
            yield BatchLatency(
                batch=tuple(level.concurrency for level in measured.levels),
                seconds=tuple(level.seconds for level in measured.levels),
                error=tuple(max(MIN_ERROR, level.standard_error) for level in measured.levels),
                requests=f"requests {measured.requests}, the batch size is the number in flight",
                tag="measured",
                source=f"{source}, {measured.date}",
            )
