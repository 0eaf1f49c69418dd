"""One app that adapts to its load: its arrivals, and the mixture of cells that it should run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from cornserve.app.adaptation import AdaptationStatus, MixShift, MixtureProposal, PlanProposal, TypeRate, TypeShare
from cornserve.app.plan import MAX_RUNNING_CELLS, AppPlan, describe_cells
from cornserve.app.settings import AdaptationSettings
from cornserve.control.arrival_reader import Arrivals
from cornserve.control.followed_app import SpecChange
from cornserve.control.metrics import ControllerMetrics
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

REPORTED_RATE_DIFFERENCE = 0.1
"""Reported rates are updated if one of them changes by more than this share of the rate that the cells serve."""

Fits = Callable[[AppPlan], bool]
"""Returns whether there are slots for all cells of a plan."""


class AdaptedApp:
    """Observes one app, and decides when it runs other cells.

    Args:
        fits: returns whether there are slots for all cells of a plan.
        replan: returns a better plan for a shifted mix at a time in seconds, when one has been made.
        now: seconds. The arrivals are counted from then on.
    """

    def __init__(
        self,
        record: AppRecord,
        plan: AppPlan,
        settings: AdaptationSettings,
        fits: Fits,
        replan: Callable[[AdaptedApp, float], PlanProposal | None],
        now: float,
    ) -> None:
        self.record = record
        self.plan = plan
        self.settings = settings
        self.fits = fits
        self._replan = replan
        self.status = AdaptationStatus()
        self.arrivals = ArrivalHistory(HISTORY_SECONDS, now)
        self._policy = ObservedRateAdaptation(settings.limits)
        self.since = now
        """The time of the last change of the plan."""
        self._mix_since = now
        """The time since which the planned mix is the same."""
        self._proposed_at = now

    def update(self, record: AppRecord, now: float) -> None:
        plan = record.spec.plan
        assert plan is not None
        if plan.cells != self.plan.cells:
            self.since = now
        if plan.types != self.plan.types:
            self._mix_since = now
            self.status = self.status.model_copy(update={"mix_shift": None})
        if record.generation != self.record.generation:
            self.status = self.status.model_copy(update={"proposal": None, "plan_proposal": None})
        self.record, self.plan = record, plan

    def observe(self, arrivals: Arrivals, now: float) -> None:
        counts = arrivals.apps.get(self.record.name, {})
        self.arrivals.add(counts, now, is_complete=arrivals.is_complete)
        self._update_rates(now)
        self._update_mix_shift(now)

    def next_change(self, now: float, *, may_change: bool) -> SpecChange | None:
        running = RunningMixture(self.plan.counts, self.plan.rate, self.since)
        change = self._policy.decide(running, self.arrivals, now, self._solve) if may_change else None
        proposal = self._replan(self, now) if may_change else None
        if self.settings.approval:
            self._propose(change, now)
            self._propose_plan(proposal)
        elif proposal is not None:
            return self._changed_to(proposal.plan, proposal.reason)
        elif change is not None:
            return self._changed_to(self.plan.with_counts(change.counts, change.rate), change.reason)
        return None

    def _changed_to(self, plan: AppPlan, reason: str) -> SpecChange:
        return SpecChange({"plan": plan}, f"{reason}: runs {_describe(plan)} instead of {_describe(self.plan)}")

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        proposal, shift, other = self.status.proposal, self.status.mix_shift, self.status.plan_proposal
        if other is not None and before.plan_proposal is None:
            yield "AdaptationProposed", f"{other.reason}: {_describe(other.plan)} wait for an approval"
        if proposal is not None and before.proposal is None:
            cells = _describe(self.plan.with_counts(proposal.counts, proposal.target))
            yield "AdaptationProposed", f"{proposal.reason}: {cells} wait for an approval"
        if shift is not None and before.mix_shift is None:
            yield "MixShifted", f"{shift.distance:.0%} of the requests have another type than planned"

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        metrics.set_rates(self.record.name, self._rates(now))

    def _solve(self, rate: float) -> Mapping[int, int]:
        """Returns the cells that serve the rate on the fewest GPUs, or as much of it as there are slots."""
        rates = self.plan.efficient_rates

        def may_run(counts: Mapping[int, int]) -> bool:
            return 1 <= sum(counts.values()) <= MAX_RUNNING_CELLS and self.fits(self.plan.with_counts(counts, rate))

        counts = cells_for_rate(rates, rate) or {min(rates): 1}
        if may_run(counts):
            return counts
        budgets = range(_gpus(self.plan.counts) + 1, _gpus(counts))
        usable = bisect_left(budgets, True, key=lambda gpus: not may_run(cells_for_gpus(rates, gpus)))
        return cells_for_gpus(rates, budgets[usable - 1]) if usable else self.plan.counts

    def _propose(self, change: MixtureChange | None, now: float) -> None:
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

    def _propose_plan(self, proposal: PlanProposal | None) -> None:
        """Publishes another plan for an approval. A proposal ends when the shift of the mix ends."""
        if proposal is not None or self.status.mix_shift is None:
            self.status = self.status.model_copy(update={"plan_proposal": proposal})

    def _update_mix_shift(self, now: float) -> None:
        """Publishes a shift of the mix, or its end."""
        limits = self.settings.limits
        seconds = max(limits.shrink_seconds, limits.window_seconds)
        window = self.arrivals.window(seconds, now)
        if window is None or now - seconds < self._mix_since:
            return
        known = self.status.mix_shift
        planned = {name: kind.share for name, kind in self.plan.types.items()}
        observed = find_mix_shift(planned, window, tolerance=MIX_SHIFT if known is None else MIX_SHIFT_END)
        if observed is None:
            known = None
        elif known is None or abs(known.distance - observed.distance) > REPORTED_DIFFERENCE:
            known = _mix_shift(planned, observed)
        self.status = self.status.model_copy(update={"mix_shift": known})

    def _update_rates(self, now: float) -> None:
        """Publishes the rates if one of them has changed much."""
        rates = [
            TypeRate(type=name, planned=round(planned, 3), observed=float(f"{observed:.2g}"))
            for name, (planned, observed) in sorted(self._rates(now).items())
        ]
        known = {rate.type: rate for rate in self.status.rates}
        if known.keys() != {rate.type for rate in rates} or any(
            rate.planned != known[rate.type].planned
            or abs(rate.observed - known[rate.type].observed) > REPORTED_RATE_DIFFERENCE * self.plan.rate
            for rate in rates
        ):
            self.status = self.status.model_copy(update={"rates": rates})

    def _rates(self, now: float) -> Mapping[str, tuple[float, float]]:
        """Returns the planned and the observed requests per second of each type, over the longest short window."""
        window = self.arrivals.window(self.settings.limits.shrink_window, now)
        observed = {} if window is None else {name: count / window.seconds for name, count in window.counts.items()}
        planned = {name: kind.share * self.plan.rate for name, kind in self.plan.types.items()}
        return {name: (planned.get(name, 0.0), observed.get(name, 0.0)) for name in planned | observed}


def _describe(plan: AppPlan) -> str:
    """Returns the running cells for users, such as `2 × 4 GPUs, 1 × 1 GPU (9 GPUs, 21 requests/s)`."""
    return f"{describe_cells(plan.counts)} ({plan.gpus} GPUs, {plan.rate:.4g} requests/s)"


def _gpus(counts: Mapping[int, int]) -> int:
    return sum(size * count for size, count in counts.items())


def _mix_shift(planned: Mapping[str, float], observed: ObservedMix) -> MixShift:
    shares = [
        TypeShare(type=name, planned=round(planned.get(name, 0.0), 3), observed=round(share, 3))
        for name, share in sorted(observed.shares.items())
    ]
    return MixShift(distance=round(observed.distance, 3), shares=shares)
