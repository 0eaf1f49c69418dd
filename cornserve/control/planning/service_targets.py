"""The targets that limit the plan of an app."""

from __future__ import annotations

from typing import Final

from cornserve.app.settings import LatencyTargetSettings
from cornserve_planner.inputs.request_targets import GoodputTargets
from cornserve_planner.inputs.service_targets import ServiceTargets

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
    given = (
        {}
        if targets is None
        else {"ttft": targets.ttft_seconds, "tbt": targets.tbt_seconds, "e2e": targets.end_to_end_seconds}
    )
    seconds = {kind: {"": target} for kind, target in given.items() if target is not None}
    latency = GoodputTargets(seconds) if percentile is None else GoodputTargets(seconds, percentile)
    return ServiceTargets(latency=latency) if utilization is None else ServiceTargets(utilization, latency)
