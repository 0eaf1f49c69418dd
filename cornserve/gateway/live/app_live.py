"""One app with its executors, the tensors between them, its paths and its plan."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from cornserve.app.adaptation_status import MixtureProposal, PlanProposal
from cornserve.app.overview import (
    LiveApp,
    LiveCell,
    LiveCellCount,
    LiveEdge,
    LiveLimit,
    LiveNode,
    LivePath,
    LivePlan,
    LivePlannedPath,
    LiveProposal,
    LiveReplica,
    LiveType,
    ReadGateways,
)
from cornserve.app.plan import AppPlan
from cornserve.app.record import AppView, GroupStatus, ReplicaStatus
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.live.figures import AppSums, ReplicaSums, Sums
from cornserve.gateway.live.overview import app_figures, percentiles
from cornserve.gateway.live.replica_prices import cell_cost, total_cost
from cornserve.gateway.live.replica_reports import ReplicaReport
from cornserve.gateway.observe.app_counts import select
from cornserve.gpu_prices import GpuPrices

LIVE_SECONDS: Final = 10.0
"""The window of rates is at least this long, and at most one step of the history longer."""

BytesPerSecond = Mapping[str, Mapping[str, float]]
"""Bytes per second that each executor group receives, by kind of transfer."""


def app_live(
    view: AppView,
    context: GatewayContext,
    sums: Sums,
    gateways: ReadGateways,
    reports: Mapping[str, ReplicaReport],
    received: BytesPerSecond,
) -> LiveApp:
    app, seconds = sums.app(view.name), sums.window_seconds
    served = context.apps.served().get(view.name)
    shares: Sequence[float] = () if served is None or view.spec.plan else served.route.shares
    planned = () if served is None or served.route.plan is None else [*served.route.plan.shares()]
    return LiveApp(
        time=time.time(),
        window_seconds=seconds,
        gateways=gateways,
        app=app_figures(view, app, seconds, context),
        nodes=[_node(group, app, seconds, sums.replicas, reports) for group in view.status.groups],
        edges=_edges(app, seconds, received),
        paths=_paths(app, seconds, shares),
        planned_paths=[_planned_path(app, kind.request_type, kind.cell, kind.path, share) for kind, share in planned],
        cells=[] if view.spec.plan is None else _cells(view, view.spec.plan, context.prices),
        plan=None if view.spec.plan is None else _plan(view, view.spec.plan, context.prices),
        proposal=None if view.pending_proposal is None else _described(view.pending_proposal),
    )


def _node(
    group: GroupStatus,
    app: AppSums,
    seconds: float,
    replicas: Mapping[str, ReplicaSums],
    reports: Mapping[str, ReplicaReport],
) -> LiveNode:
    return LiveNode(
        group=group.key,
        executor=group.executor,
        option=group.option,
        cell=group.cell,
        gpus=group.gpus,
        apps=group.apps,
        wanted=group.wanted,
        ready=group.ready,
        invocations_total=app.total.get(("group", group.key), 0),
        invocations_per_second=app.window.get(("group", group.key), 0) / seconds,
        tokens_total=app.total.get(("tokens", group.key), 0),
        tokens_per_second=app.window.get(("tokens", group.key), 0) / seconds,
        replicas=[
            _replica(replica, replicas.get(replica.id) or ReplicaSums(), reports.get(replica.id) or ReplicaReport())
            for replica in group.replicas
        ],
    )


def _replica(replica: ReplicaStatus, sums: ReplicaSums, report: ReplicaReport) -> LiveReplica:
    return LiveReplica(
        id=replica.id,
        state=replica.state,
        message=replica.message,
        endpoint=replica.endpoint,
        running=sums.running,
        invocations_total=sums.codes.total(),
        codes=dict(sums.codes),
        seconds=percentiles({("seconds", str(bucket)): count for bucket, count in sums.seconds.items()}, "seconds"),
        batch_size=report.batch_size,
        queue=report.queue,
        kv_cache_usage=report.kv_cache_usage,
        received_bytes_total=dict(report.received_bytes),
    )


def _edges(app: AppSums, seconds: float, received: BytesPerSecond) -> list[LiveEdge]:
    counts = {(source, target): count for (source, target), count in sorted(select(app.total, "edge").items())}
    window = select(app.window, "edge")
    sources: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in counts:
        if source:
            sources[target].append(source)
    edges = []
    for (source, target), count in counts.items():
        recent = window.get((source, target), 0)
        others = [window.get((other, target), 0) for other in sources[target]]
        share = recent / sum(others) if sum(others) else 1 / max(len(others), 1)
        kinds = {kind: rate * share for kind, rate in received.get(target, {}).items()} if source else {}
        edge = LiveEdge(
            source=source or None,
            target=target,
            invocations_total=count,
            invocations_per_second=recent / seconds,
            bytes_per_second=sum(kinds.values()) if source and target in received else None,
            kinds=kinds,
            shared_bytes=bool(source) and len(others) > 1,
        )
        edges.append(edge)
    return edges


def _paths(app: AppSums, seconds: float, shares: Sequence[float]) -> list[LivePath]:
    total, window = select(app.total, "path"), select(app.window, "path")
    weight, requests = sum(shares), sum(window.values())
    return [
        LivePath(
            index=index,
            planned=share / weight if weight else 0.0,
            actual=window.get((str(index),), 0) / requests if requests else None,
            requests_total=total.get((str(index),), 0),
            requests_per_second=window.get((str(index),), 0) / seconds,
        )
        for index, share in enumerate(shares)
    ]


def _planned_path(app: AppSums, kind: str, cell: str, path: int, share: float) -> LivePlannedPath:
    key = ("planned", kind, cell, str(path))
    requests = sum(count for labels, count in app.window.items() if labels[:2] == ("planned", kind))
    return LivePlannedPath(
        type=kind,
        cell=cell,
        path=path,
        planned=share,
        actual=app.window.get(key, 0) / requests if requests else None,
        requests_total=app.total.get(key, 0),
    )


def _cells(view: AppView, plan: AppPlan, prices: GpuPrices) -> list[LiveCell]:
    ready, wanted = Counter[str](), Counter[str]()
    for group in view.status.groups:
        if group.cell is not None:
            ready[group.cell] += group.ready
            wanted[group.cell] += group.wanted
    return [
        LiveCell(
            name=name,
            gpus=cell.gpus,
            rate=cell.rate,
            ready=ready[name],
            wanted=wanted[name],
            dollars_per_hour=cell_cost(view.spec, plan, cell, prices),
        )
        for name, cell in plan.running_cells
    ]


def _plan(view: AppView, plan: AppPlan, prices: GpuPrices) -> LivePlan:
    rates = {} if view.status.adaptation is None else {rate.type: rate for rate in view.status.adaptation.rates}
    observed = sum(rate.observed for rate in rates.values()) if rates else None
    load = plan.target if observed is None else observed
    limits = [
        LiveLimit(cell_gpus=cell.gpus, option=option, replicas=count, utilization=cell.loads.get(option, 0.0) / count)
        for cell in plan.cells
        if cell.count
        for option, count in cell.replicas.items()
    ]
    return LivePlan(
        rate=plan.rate,
        target=plan.target,
        observed_per_second=observed,
        headroom=None if load is None else 1 - load / plan.rate,
        gpus=plan.gpus,
        dollars_per_hour=total_cost(cell_cost(view.spec, plan, cell, prices) for _, cell in plan.running_cells),
        default_type=plan.default_type,
        types=[
            LiveType(
                type=name,
                share=kind.share,
                planned_per_second=rates[name].planned if name in rates else None,
                observed_per_second=rates[name].observed if name in rates else None,
            )
            for name, kind in plan.types.items()
        ],
        limits=sorted(limits, key=lambda limit: -limit.utilization),
    )


def _described(proposal: MixtureProposal | PlanProposal) -> LiveProposal:
    plan = proposal if isinstance(proposal, PlanProposal) else None
    counts = proposal.plan.counts if isinstance(proposal, PlanProposal) else proposal.counts
    return LiveProposal(
        kind="cells" if plan is None else "plan",
        reason=proposal.reason,
        gpus_now=proposal.gpus_now,
        gpus=proposal.gpus,
        rate_now=proposal.rate_now,
        rate=proposal.rate,
        cells=[LiveCellCount(gpus=size, count=count) for size, count in sorted(counts.items())],
        starts=None if plan is None else plan.starts,
        stops=None if plan is None else plan.stops,
        obstacle="" if plan is None else plan.obstacle,
    )
