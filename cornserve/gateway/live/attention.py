"""Finds problems and decisions that need an administrator, with the command that helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from cornserve.app.overview import AppFigures, Attention, ReadGateways
from cornserve.app.record import AppView, Phase, UnreadableApp

MET_SHARE: Final = 0.95
"""The share of requests that have to meet a target."""

_ORDER: Final = ("error", "warning", "info")


def find_attention(
    views: Iterable[AppView], apps: Sequence[AppFigures], unreadable: Iterable[UnreadableApp], gateways: ReadGateways
) -> list[Attention]:
    """Returns the findings, the most severe ones first."""
    found = [*_instance(unreadable, gateways)]
    for view, figures in zip(views, apps, strict=True):
        found += [*_state(view, figures), *_load(figures)]
    return sorted(found, key=lambda each: _ORDER.index(each.severity))


def _instance(unreadable: Iterable[UnreadableApp], gateways: ReadGateways) -> Iterator[Attention]:
    for app in unreadable:
        yield Attention(
            severity="error", app=app.name, reason="Damaged", message=app.message, action="cornserve doctor"
        )
    for gateway in gateways.missing:
        message = f"the gateway {gateway.gateway} does not answer, and its requests are missing here: {gateway.error}"
        yield Attention(
            severity="warning", app=None, reason="GatewayMissing", message=message, action="cornserve doctor"
        )


def _state(view: AppView, figures: AppFigures) -> Iterator[Attention]:
    name, status = view.name, view.status
    if figures.suspended:
        action = "correct its code and deploy it again"
        yield Attention(severity="error", app=name, reason="Suspended", message=figures.suspended, action=action)
    if figures.phase is Phase.FAILED:
        yield Attention(
            severity="error", app=name, reason="Failed", message=figures.message, action=f"cornserve logs {name}"
        )
    if status.unreachable:
        yield Attention(
            severity="error", app=name, reason="Unreachable", message=status.unreachable, action="cornserve doctor"
        )
    if figures.replicas.failed or (figures.phase is Phase.SERVING and figures.ready < figures.wanted):
        message = f"{figures.ready} of {figures.wanted} replicas are ready"
        action = f"cornserve status {name} --events"
        yield Attention(severity="warning", app=name, reason="ReplicasMissing", message=message, action=action)
    if (proposal := view.pending_proposal) is not None:
        action = f"cornserve scale {name} --approve"
        yield Attention(severity="info", app=name, reason="Proposal", message=proposal.reason, action=action)


def _load(figures: AppFigures) -> Iterator[Attention]:
    name = figures.name
    if figures.errors_per_second:
        message = f"{figures.errors_per_second:.3g} requests/s end with a status from 500 on"
        yield Attention(severity="warning", app=name, reason="Errors", message=message, action=f"cornserve logs {name}")
    for target in figures.targets:
        if target.attainment is not None and target.attainment < MET_SHARE:
            message = f"{target.attainment:.0%} of the requests meet the {target.target} target of {target.seconds:g} s"
            action = f"cornserve scale {name}"
            yield Attention(severity="warning", app=name, reason="TargetMissed", message=message, action=action)
