"""The targets that limit the plan of an app."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cornserve.app.settings import LatencyTargetSettings
from cornserve_planner.inputs.service_targets import ServiceTargets
from cornserve_planner.targets.latency_targets import LatencyTargets

TBT_REASON: Final = (
    "the time between two tokens is not measured: give a profile with a latency that measures between_tokens, or "
    "remove the target"
)


def service_targets(
    targets: LatencyTargetSettings | None, utilization: float | None, percentile: float | None
) -> ServiceTargets:
    """Returns the planner's targets. Raises `InvalidInputError`.

    Args:
        utilization, percentile: None for those of the planner.
    """
    latency = LatencyTargets()
    if targets is not None:
        latency = LatencyTargets(targets.ttft_seconds, targets.tbt_seconds, targets.end_to_end_seconds)
    if percentile is not None:
        latency = replace(latency, percentile=percentile)
    return ServiceTargets(latency=latency) if utilization is None else ServiceTargets(utilization, latency)
