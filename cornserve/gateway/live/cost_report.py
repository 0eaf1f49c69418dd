"""The report of the costs of apps."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cornserve.app.costs import AppCost, CostReport, StageCost
from cornserve.app.overview import ReadGateways
from cornserve.gateway.live.cost_history import ComputeSeconds, CostWindow
from cornserve.gateway.live.replica_prices import total_cost
from cornserve_policies.cost_division import shares_of

HOUR = 3600.0


def cost_report(window: CostWindow, computed: Iterable[ComputeSeconds], gateways: ReadGateways) -> CostReport:
    """Divides the time of each executor group among the apps that use it.

    Args:
        computed: the seconds of invocations in each gateway.
    """
    used: dict[str, dict[str, float]] = {}
    for gateway in computed:
        for app, by_group in gateway.apps.items():
            for group, spent in by_group.items():
                apps = used.setdefault(group, {})
                apps[app] = apps.get(app, 0.0) + spent
    stages: dict[str, list[StageCost]] = {}
    for group, gpu_seconds in window.occupied.items():
        use, spent_by = window.groups[group], used.get(group, {})
        for app, share in shares_of(use.apps, spent_by).items():
            price, charged = use.dollars_per_hour, gpu_seconds * share
            stage = StageCost(
                group=group,
                executor=use.apps.get(app, ""),
                compute_seconds=spent_by.get(app, 0.0),
                share=share,
                gpu_seconds=charged,
                dollars=None if price is None else charged / HOUR * price,
            )
            stages.setdefault(app, []).append(stage)
    apps_costs = [
        AppCost(
            app=app,
            gpu_seconds=math.fsum(stage.gpu_seconds for stage in found),
            dollars=total_cost(stage.dollars for stage in found),
            stages=found,
        )
        for app, found in sorted(stages.items())
    ]
    return CostReport(
        seconds=window.seconds,
        gateways=gateways,
        gpu_seconds=math.fsum(window.occupied.values()),
        dollars=total_cost(each.dollars for each in apps_costs),
        apps=apps_costs,
    )
