"""The state of an app's adaptation to its load, for users."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from cornserve.app.adaptation_status import AutoscaledLoad, MixShift, MixtureProposal, PlanProposal
from cornserve.app.planned_replicas import planned_replicas
from cornserve.app.record import AppView
from cornserve.durations import describe_duration
from cornserve_plan.plan import describe_cells


def adaptation_lines(app: AppView, now: datetime) -> Iterator[str]:
    """Yields the time until which the size holds, the loads of autoscaled executors, the change that waits for an
    approval, and the shift of the mix."""
    yield from hold_lines(app, now)
    adaptation = app.status.adaptation
    planned = planned_replicas(app.spec, app.status.groups)
    for load in [] if adaptation is None else adaptation.executors:
        replicas = app.spec.replicas_of(load.name)
        if load.name in planned:
            replicas = planned[load.name].running(app.spec.executor_replicas.get(load.name))
        yield _load(load, replicas)
    if adaptation is not None and adaptation.proposal is not None:
        yield from _proposal(app.name, adaptation.proposal)
    if adaptation is not None and adaptation.plan_proposal is not None:
        yield from _plan_proposal(app.name, adaptation.plan_proposal)
    if adaptation is not None and adaptation.mix_shift is not None:
        yield from _mix_shift(adaptation.mix_shift)
        if app.spec.planning is None or app.spec.policies.adaptation is None:
            yield f"  make another plan with `cornserve plan from {app.name}`, and deploy it"
        else:
            yield "  another plan replaces the running one if it serves this mix notably better"


def hold_lines(app: AppView, now: datetime) -> Iterator[str]:
    """Yields the time until which the load of the app changes nothing, if it is in the future."""
    until = app.spec.held_until
    if until is not None and app.spec.is_held(now) and app.spec.hold_seconds is not None:
        time, left = until.astimezone(UTC), describe_duration((until - now).total_seconds())
        yield f"size: holds until {time:%Y-%m-%d %H:%M:%S} UTC ({left}), whatever the load"
        yield f"  change the time with `cornserve scale {app.name} --hold SECONDS`; 0 ends it"


def _load(load: AutoscaledLoad, replicas: int) -> str:
    observed = "not known yet," if load.load is None else f"{load.load:.4g}"
    capacity = f"{load.capacity * replicas:.4g} {load.unit}/s ({replicas} × {load.capacity:.4g})"
    return f"load of {load.name}: {observed} of {capacity}"


def _proposal(app: str, proposal: MixtureProposal) -> Iterator[str]:
    yield f"proposed: {describe_cells(proposal.counts)}, because {proposal.reason}"
    now = f"now {proposal.rate_now:.4g} on {proposal.gpus_now}"
    yield f"  {proposal.rate:.4g} requests/s on {proposal.gpus} GPUs ({now})"
    yield f"  approve it with `cornserve scale {app} --approve`"


def _plan_proposal(app: str, proposal: PlanProposal) -> Iterator[str]:
    yield f"proposed: another plan, {describe_cells(proposal.plan.counts)}, because {proposal.reason}"
    now = f"now {proposal.rate_now:.4g} on {proposal.gpus_now}"
    yield f"  {proposal.rate:.4g} requests/s on {proposal.gpus} GPUs ({now}), for this mix"
    yield f"  {proposal.starts} replicas start, and {proposal.stops} stop"
    if proposal.obstacle:
        yield f"  it cannot replace the running plan: {proposal.obstacle}"
    else:
        yield f"  approve it with `cornserve scale {app} --approve`"


def _mix_shift(shift: MixShift) -> Iterator[str]:
    yield f"mix: {shift.distance:.0%} of the requests have another type than planned"
    for share in shift.shares:
        name = share.type or "types that are not planned"
        yield f"  {name}: {share.observed:.1%} (planned {share.planned:.1%})"
