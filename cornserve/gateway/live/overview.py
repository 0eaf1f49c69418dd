"""The overview of all apps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from cornserve.app.overview import AppFigures, Overview, ReadGateways, ReplicaCounts, SecondsPercentiles, TargetFigures
from cornserve.app.record import AppView, ReplicaState, UnreadableApp
from cornserve.control.store.base import AppRecord
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.live.app_view import app_view
from cornserve.gateway.live.attention import find_attention
from cornserve.gateway.live.figures import AppSums, Sums
from cornserve.gateway.live.replica_prices import Cost, replica_costs, total_cost
from cornserve.gateway.observe.app_changes import AppChanges
from cornserve.gateway.observe.app_counts import Counts, errors, percentile, requests, select

OVERVIEW_SECONDS: Final = 60.0
"""The window of rates and percentiles."""


def overview(context: GatewayContext, changes: AppChanges, sums: Sums, gateways: ReadGateways) -> Overview:
    records = context.apps.records()
    views = [app_view(record, context) for _, record in sorted(records.items())]
    apps = [app_figures(view, sums.app(view.name), sums.window_seconds, context) for view in views]
    unreadable = [UnreadableApp(name=name, message=text) for name, text in context.apps.unreadable().items()]
    return Overview(
        time=time.time(),
        window_seconds=sums.window_seconds,
        gateways=gateways,
        gpus=_used_gpus(records.values()),
        dollars_per_hour=_dollars(views, context),
        apps=apps,
        unreadable=unreadable,
        attention=find_attention(views, apps, unreadable, gateways),
        events=changes.events,
    )


def app_figures(view: AppView, sums: AppSums, seconds: float, context: GatewayContext) -> AppFigures:
    """Returns the figures of an app.

    Args:
        seconds: the length of the window.
    """
    status, total, window = view.status, sums.total, sums.window
    states = [replica.state for group in status.groups for replica in group.replicas]
    served = context.apps.served().get(view.name)
    return AppFigures(
        name=view.name,
        phase=view.phase,
        generation=view.generation,
        serving_generation=status.serving_generation,
        message=status.message,
        suspended=status.suspended,
        ready=sum(group.ready for group in status.groups),
        wanted=sum(group.wanted for group in status.groups),
        replicas=ReplicaCounts.model_validate({state.value: states.count(state) for state in ReplicaState}),
        gpus=sum(group.gpus * len(group.occupying) for group in status.groups),
        dollars_per_hour=_dollars([view], context),
        has_plan=view.spec.plan is not None,
        has_proposal=view.pending_proposal is not None,
        operations=None if served is None else sorted(served.code.operations),
        running=sums.running,
        requests_total=requests(total),
        requests_per_second=requests(window) / seconds,
        statuses={status: count for (status,), count in sorted(select(total, "status").items())},
        errors_total=errors(total),
        errors_per_second=errors(window) / seconds,
        prompt_tokens_total=total.get(("prompt",), 0),
        generation_tokens_total=total.get(("generation",), 0),
        generation_tokens_per_second=window.get(("generation",), 0) / seconds,
        ttft_seconds=percentiles(window, "ttft"),
        tbt_seconds=percentiles(window, "tbt"),
        e2e_seconds=percentiles(window, "e2e"),
        targets=_targets(view, total, window),
    )


def percentiles(counts: Counts, name: str) -> SecondsPercentiles | None:
    p50, p90, p99 = (percentile(counts, name, share) for share in (0.5, 0.9, 0.99))
    return None if p50 is None or p90 is None or p99 is None else SecondsPercentiles(p50=p50, p90=p90, p99=p99)


def _targets(view: AppView, total: Counts, window: Counts) -> list[TargetFigures]:
    settings = view.spec.policies.targets
    if settings is None:
        return []
    seconds = {"ttft": settings.ttft_seconds, "tbt": settings.tbt_seconds, "e2e": settings.end_to_end_seconds}
    found = []
    for target, limit in seconds.items():
        if limit is not None:
            met, missed = window.get(("met", target), 0), window.get(("missed", target), 0)
            figures = TargetFigures(
                target=target,
                seconds=limit,
                met_total=total.get(("met", target), 0),
                missed_total=total.get(("missed", target), 0),
                attainment=met / (met + missed) if met + missed else None,
            )
            found.append(figures)
    return found


def _dollars(views: Iterable[AppView], context: GatewayContext) -> Cost:
    """Returns the cost of the replicas that occupy GPUs, each of which counts once, or None if a price is unknown."""
    if not context.prices.by_type:
        return None
    costs: dict[str, Cost] = {}
    for view in views:
        costs |= replica_costs(view.spec, view.status.groups, context.prices)
    return total_cost(costs.values())


def _used_gpus(records: Iterable[AppRecord]) -> int:
    """Returns the GPUs that replicas occupy. Apps may share replicas."""
    groups = (group for record in records for group in record.status.groups)
    return sum({replica.id: group.gpus for group in groups for replica in group.occupying}.values())
