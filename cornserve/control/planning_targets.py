"""The targets that limit the plan of an app."""

from __future__ import annotations

from typing import Final

from cornserve.app.settings import LatencyTargetSettings
from cornserve_planner.latency_targets import LatencyTargets
from cornserve_planner.service_targets import ServiceTargets

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
    latency = {} if percentile is None else {"percentile": percentile}
    seconds = (
        LatencyTargets(**latency)
        if targets is None
        else LatencyTargets(targets.ttft_seconds, targets.tbt_seconds, targets.end_to_end_seconds, **latency)
    )
    return ServiceTargets(latency=seconds) if utilization is None else ServiceTargets(utilization, seconds)
