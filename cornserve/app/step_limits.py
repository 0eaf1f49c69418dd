"""The limits of engine steps of a plan for latency targets, as options of a model's executors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cornserve.app.plan import AppPlan
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppSpec
from cornserve_tasklib.llm import LLMTask
from cornserve_tasklib.prefill_decode import DecodeTask, PrefillTask
from cornserve_tasklib.thinker import ThinkerTask

StepLimits = Mapping[str, int]
"""Values of `max_num_seqs` and `max_num_batched_tokens`."""

ENGINES: Final = {task.__name__: task.executor for task in (LLMTask, ThinkerTask, PrefillTask, DecodeTask)}
"""The executors whose options contain the limits, by unit task."""


def with_step_limits(spec: AppSpec, plan: AppPlan, limits: Mapping[str, StepLimits]) -> tuple[AppSpec, AppPlan]:
    """Returns the spec and the plan with the limits as options of the executors.

    Options of one executor get the smallest limits. Limits that the spec sets remain, and so do apps with source, whose
    code sets the options.

    Args:
        limits: by deployment option.
    """
    found: dict[str, dict[str, int]] = {}
    for name, given in limits.items():
        executor = ENGINES.get(plan.options[name].task)
        if executor is not None and spec.model is not None:
            known = found.setdefault(executor, {})
            known.update({field: min(value, known.get(field, value)) for field, value in given.items()})
    overrides = {override.name: override for override in spec.executors}
    general = overrides["*"].options if "*" in overrides else {}
    for executor, values in found.items():
        override = overrides.get(executor) or ExecutorOverride(name=executor)
        found[executor] = {key: value for key, value in values.items() if key not in general | override.options}
        overrides[executor] = override.model_copy(update={"options": override.options | found[executor]})
    options = {}
    for name, option in plan.options.items():
        new = found.get(ENGINES.get(option.task, ""))
        settings = option.settings if not new else _with_options(option.settings, new)
        options[name] = option.model_copy(update={"settings": settings})
    return spec.model_copy(update={"executors": [*overrides.values()]}), plan.model_copy(update={"options": options})


def unset_limits(plan: AppPlan, limits: Mapping[str, StepLimits]) -> dict[str, StepLimits]:
    """Returns the limits for which engines have no option yet, by deployment option."""
    found: dict[str, StepLimits] = {}
    for name, given in limits.items():
        option = plan.options[name]
        known: Mapping[str, Any] = option.settings.get("options") or {}  # type: ignore[assignment]
        if option.task in ENGINES and (unset := {key: each for key, each in given.items() if key not in known}):
            found[name] = unset
    return found


def _with_options(settings: Mapping[str, Any], new: StepLimits) -> dict[str, Any]:
    return {**settings, "options": {**settings.get("options", {}), **new}}
