"""One app that adapts to its load: its arrivals, and the mixture of cells that it should run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from cornserve.app.adaptation import AdaptationStatus, MixShift, MixtureProposal, TypeShare
from cornserve.app.plan import MAX_RUNNING_CELLS, AppPlan
from cornserve.app.settings import AdaptationSettings
from cornserve.control.store.base import AppRecord
from cornserve_policies.adaptation import (
    HISTORY_SECONDS,
    MixtureChange,
    ObservedMix,
    ObservedRateAdaptation,
    RunningMixture,
    find_mix_shift,
)
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.mixture import cells_for_gpus, cells_for_rate

MIX_SHIFT, MIX_SHIFT_END = 0.1, 0.05
"""Distances from the planned mix at which a shift is reported and at which the report ends."""

REPORTED_DIFFERENCE = 0.05
"""A reported shift is updated if its distance changes by more than this."""

Fits = Callable[[AppPlan], bool]
"""Returns whether there are slots for all cells of a plan."""


class AdaptedApp:
    """Observes one app, and decides when it runs other cells.

    Args:
        now: seconds. The arrivals are counted from then on.
    """

    def __init__(self, record: AppRecord, plan: AppPlan, settings: AdaptationSettings, now: float) -> None:
        self.record = record
        self.plan = plan
        self.settings = settings
        self.status = AdaptationStatus()
        self.arrivals = ArrivalHistory(HISTORY_SECONDS, now)
        self._policy = ObservedRateAdaptation(settings.limits)
        self._since = now
        self._proposed_at = now

    def update(self, record: AppRecord, plan: AppPlan, now: float) -> None:
        """Applies a newer record of the app."""
        if plan.counts != self.plan.counts:
            self._since = now
        if record.generation != self.record.generation:
            self.status = self.status.model_copy(update={"proposal": None})
        self.record, self.plan = record, plan

    def decide(self, now: float, fits: Fits) -> MixtureChange | None:
        """Returns the cells to run instead of the running ones, or None."""
        running = RunningMixture(self.plan.counts, self.plan.rate, self._since)
        return self._policy.decide(running, self.arrivals, now, lambda rate: self._solve(rate, fits))

    def _solve(self, rate: float, fits: Fits) -> Mapping[int, int]:
        """Returns the cells that serve the rate on the fewest GPUs, or as much of it as there are slots."""
        rates = self.plan.efficient_rates

        def may_run(counts: Mapping[int, int]) -> bool:
            return 1 <= sum(counts.values()) <= MAX_RUNNING_CELLS and fits(self.plan.with_counts(counts, rate))

        counts = cells_for_rate(rates, rate) or {min(rates): 1}
        if may_run(counts):
            return counts
        budgets = range(_gpus(self.plan.counts) + 1, _gpus(counts))
        usable = bisect_left(budgets, True, key=lambda gpus: not may_run(cells_for_gpus(rates, gpus)))
        return cells_for_gpus(rates, budgets[usable - 1]) if usable else self.plan.counts

    def propose(self, change: MixtureChange | None, now: float) -> None:
        """Publishes a change for an approval. A proposal ends when the load has not needed it for the dwell time."""
        known = self.status.proposal
        if change is not None:
            self._proposed_at = now
            if known is None or known.counts != change.counts:
                counts = {size: count for size, count in change.counts.items() if count}
                known = MixtureProposal.of(self.record.generation, self.plan, counts, change.rate, change.reason)
        elif now > self._proposed_at + self.settings.dwell_seconds:
            known = None
        self.status = self.status.model_copy(update={"proposal": known})

    def update_mix_shift(self, now: float) -> None:
        """Publishes a shift of the mix, or its end."""
        limits = self.settings.limits
        window = self.arrivals.window(max(limits.shrink_seconds, limits.window_seconds), now)
        if window is None:
            return
        known = self.status.mix_shift
        planned = {name: kind.share for name, kind in self.plan.types.items()}
        observed = find_mix_shift(planned, window, tolerance=MIX_SHIFT if known is None else MIX_SHIFT_END)
        if observed is None:
            known = None
        elif known is None or abs(known.distance - observed.distance) > REPORTED_DIFFERENCE:
            known = _mix_shift(planned, observed)
        self.status = self.status.model_copy(update={"mix_shift": known})

    def rates(self, now: float) -> Mapping[str, tuple[float, float]]:
        """Returns the planned and the observed requests per second of each type, over the longest short window."""
        window = self.arrivals.window(self.settings.limits.shrink_window, now)
        observed = {} if window is None else {name: count / window.seconds for name, count in window.counts.items()}
        planned = {name: kind.share * self.plan.rate for name, kind in self.plan.types.items()}
        return {name: (planned.get(name, 0.0), observed.get(name, 0.0)) for name in planned | observed}


def _gpus(counts: Mapping[int, int]) -> int:
    return sum(size * count for size, count in counts.items())


def _mix_shift(planned: Mapping[str, float], observed: ObservedMix) -> MixShift:
    shares = [
        TypeShare(type=name, planned=round(planned.get(name, 0.0), 3), observed=round(share, 3))
        for name, share in sorted(observed.shares.items())
    ]
    return MixShift(distance=round(observed.distance, 3), shares=shares)
