"""The decision log of the controller: each decision about cells, plans and replicas, for apps that switch it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cornserve.observe.decision_file import record_decision
from cornserve_policies.adaptation import (
    AdaptationLimits,
    MixtureChange,
    ObservedMix,
    ObservedRateAdaptation,
    PlanCapacity,
    RunningMixture,
    SolveMixture,
)
from cornserve_policies.arrivals import ArrivalHistory, WindowCounts
from cornserve_policies.autoscaling import ExecutorAutoscaling, ExecutorLimits, ReplicaChange, RunningReplicas
from cornserve_policies.recorded_decisions import RecordingHistory


def decide_mixture(
    app: str,
    limits: AdaptationLimits,
    running: RunningMixture,
    arrivals: ArrivalHistory,
    now: float,
    solve: SolveMixture,
) -> MixtureChange | None:
    """Decides which mixture of cells runs, and logs the decision with all that the policy read."""
    history, solved = RecordingHistory(arrivals), []

    def solve_and_record(rate: float) -> Mapping[int, int]:
        counts = solve(rate)
        solved.append([rate, sorted(counts.items())])
        return counts

    change = ObservedRateAdaptation(limits).decide(running, history, now, solve_and_record)
    seen: dict[str, Any] = {
        "limits": asdict(limits),
        "running": {**asdict(running), "counts": sorted(running.counts.items())},
        "windows": history.windows,
        "solved": solved,
        "now": now,
    }
    chosen = None if change is None else sorted(change.counts.items())
    record_decision(
        {"event": "cells", "app": app, "counts": chosen, "reason": "" if change is None else change.reason}, seen
    )
    return change


def decide_replicas(
    app: str, executor: str, limits: ExecutorLimits, running: RunningReplicas, loads: ArrivalHistory, now: float
) -> ReplicaChange | None:
    """Decides how many replicas of an executor its load needs, and logs the decision with all that the policy read."""
    history = RecordingHistory(loads)
    change = ExecutorAutoscaling(limits).decide(running, history, now)
    seen = {"limits": asdict(limits), "running": asdict(running), "windows": history.windows, "now": now}
    fields = {
        "event": "replicas",
        "app": app,
        "executor": executor,
        "replicas": None if change is None else change.replicas,
        "reason": "" if change is None else change.reason,
    }
    record_decision(fields, seen)
    return change


def log_mix(
    app: str, planned: Mapping[str, float], window: WindowCounts, tolerance: float, observed: ObservedMix | None
) -> None:
    """Logs whether the mix of request types has shifted so that another plan is made.

    Args:
        planned: the shares of the plan.
    """
    seen = {
        "planned": dict(planned),
        "window": {**asdict(window), "counts": dict(window.counts)},
        "tolerance": tolerance,
    }
    distance = None if observed is None else observed.distance
    record_decision({"event": "mix", "app": app, "distance": distance}, seen)


def log_plan(app: str, plan: PlanCapacity, running: PlanCapacity, target: float | None, *, is_better: bool) -> None:
    """Logs whether another plan replaces the running one."""
    seen = {"plan": asdict(plan), "running": asdict(running), "target": target}
    record_decision({"event": "plan", "app": app, "better": is_better}, seen)
