"""Uses of `cornserve plan` that take only some of its parameters."""

from __future__ import annotations

import typer

from cornserve_planner.errors import PlannerError

USED = {
    "adapt": ("adapt", "rate", "free", "save", "json"),
    "check": ("check", "workload", "json"),
    "from_app": ("from_app", "options", "url", "json"),
    "model_rate": (
        *("model_rate", "gpus_of", "gpu_types", "utilization", "robust", "objective", "solver", "time_limit"),
        *("explain", "save", "json"),
    ),
}
"""The parameters of each use."""

FORMS = {"adapt": "--adapt FILE", "check": "--check FILE", "model_rate": "--model-rate"}


def refuse_others(context: typer.Context, use: str, reason: str) -> None:
    """Raises `PlannerError` for given parameters that do not apply to a use."""
    for name in others(context, use):
        shown = {"model": "MODEL", "from_app": "--from"}.get(name, f"--{name.replace('_', '-')}")
        raise PlannerError(f"{shown}: has no effect with {FORMS[use]}, {reason}: remove it")


def others(context: typer.Context, use: str) -> list[str]:
    """Returns the given parameters that do not apply to a use."""
    sources = {name: context.get_parameter_source(name) for name in context.params if name not in USED[use]}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
