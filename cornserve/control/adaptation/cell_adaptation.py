"""One app that adapts to its load: its arrivals, and the mixture of cells that it should run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from cornserve.app.adaptation_status import (
    AdaptationStatus,
    MixShift,
    MixtureProposal,
    PlanProposal,
    TypeRate,
    TypeShare,
)
from cornserve.app.plan import AppPlan
from cornserve.app.settings import AdaptationSettings
from cornserve.control.adaptation.app_adaptation import SpecChange
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.adaptation.decision_log import decide_mixture
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.store.base import AppRecord
from cornserve_plan.plan import describe_cells
from cornserve_policies.adaptation import (
    HISTORY_SECONDS,
    MixtureChange,
    ObservedMix,
    ObservedRateAdaptation,
    RunningMixture,
    find_mix_shift,
)
from cornserve_policies.arrivals import ArrivalHistory
from cornserve_policies.mixture import MAX_RUNNING_CELLS, cells_within

MIX_SHIFT, MIX_SHIFT_END = 0.1, 0.05
"""Distances from the planned mix at which a shift is reported and at which the report ends."""

REPORTED_DIFFERENCE = 0.05
"""A reported shift is updated if its distance changes by more than this."""

REPORTED_RATE_DIFFERENCE = 0.1
"""Reported rates are updated if one of them changes by more than this share of the rate that the cells serve."""

FindObstacle = Callable[[AppPlan, AppPlan], str | None]
"""Returns why a plan cannot replace the running one, for users, or None. Until it serves, the cells of the second plan
run."""


class CellAdaptation:
    """Observes one app, and decides when it runs other cells.

    Args:
        find_obstacle: returns why a plan cannot replace the running one.
        most_gpus: returns the GPUs or slots that another plan may have at most, or infinity if this is unknown.
        replan: returns a better plan for a shifted mix at a time in seconds, when one has been made.
        now: seconds. The arrivals are counted from then on.
    """

    def __init__(
        self,
        record: AppRecord,
        plan: AppPlan,
        settings: AdaptationSettings,
        find_obstacle: FindObstacle,
        most_gpus: Callable[[], float],
        replan: Callable[[CellAdaptation, float], PlanProposal | None],
        now: float,
    ) -> None:
        self.record = record
        self.plan = plan
        self.settings = settings
        self.find_obstacle = find_obstacle
        self._most_gpus = most_gpus
        self._replan = replan
        self.status = AdaptationStatus()
        self.arrivals = ArrivalHistory(HISTORY_SECONDS, now)
        self.invocations: dict[str, ArrivalHistory] = {}
        """The invocations of each deployment option, by request type."""
        self._policy = ObservedRateAdaptation(settings.limits)
        self.since = now
        """The time of the last change of the plan."""
        self._counted_from = now
        """The time of the last change by users, from which arrivals are counted for the next change of the cells."""
        self._decided: AppPlan | None = None
        """The plan of the change that was decided here, and is not applied yet."""
        self._mix_since = now
        """The time since which the planned mix is the same."""
        self._proposed_at = now
        self._next: tuple[AppPlan, PlanProposal] | None = None
        """The plan with fewer cells that runs first, and the plan that follows."""

    def update(self, record: AppRecord, now: float) -> None:
        plan = record.spec.plan
        assert plan is not None
        if plan.cells != self.plan.cells:
            self.since = now
            if plan != self._decided and record.generation != self.record.generation:
                self._counted_from = now
        if plan.types != self.plan.types:
            self._mix_since = now
            self.status = self.status.model_copy(update={"mix_shift": None})
        if record.generation != self.record.generation:
            self._decided = None
            self.status = self.status.model_copy(update={"proposal": None, "plan_proposal": None})
            if self._next is not None and plan != self._next[0]:
                self._next = None
        self.record, self.plan = record, plan

    def observe(self, arrivals: Arrivals, now: float) -> None:
        counts = arrivals.apps.get(self.record.name, {})
        self.arrivals.add(counts, now, is_complete=arrivals.is_complete)
        by_type = arrivals.type_invocations.get(self.record.name, {})
        for name in self.plan.types:
            history = self.invocations.setdefault(name, ArrivalHistory(HISTORY_SECONDS, now))
            history.add(by_type.get(name, {}), now)
        self._update_rates(now)
        self._update_mix_shift(now)

    def next_change(self, now: float, *, may_change: bool) -> SpecChange | None:
        if self._next is not None and self.plan == self._next[0]:
            return self._second_step(self._next[1], now) if may_change else None
        running = RunningMixture(self.plan.counts, self.plan.rate, self.since, self._counted_from)
        change = self._decide(running, now) if may_change else None
        proposal = (self._replan(self, now) or self._known_proposal()) if may_change else None
        if self.settings.approval:
            self._propose(change, now)
            self._propose_plan(proposal)
        elif proposal is not None and not proposal.obstacle:
            return self._changed_to(proposal.plan, proposal.reason)
        elif proposal is not None and (first := self._first_step(proposal, now)) is not None:
            return first
        else:
            self._propose_plan(proposal)
        if not self.settings.approval and change is not None:
            return self._changed_to(self.plan.with_counts(change.counts, change.rate), change.reason)
        return None

    def _decide(self, running: RunningMixture, now: float) -> MixtureChange | None:
        if self.record.spec.policies.log_decisions:
            return decide_mixture(self.record.name, self.settings.limits, running, self.arrivals, now, self._solve)
        return self._policy.decide(running, self.arrivals, now, self._solve)

    def _known_proposal(self) -> PlanProposal | None:
        """Returns the plan that waits, with the obstacle that there is now."""
        known = self.status.plan_proposal
        if known is None or self.status.mix_shift is None:
            return None
        return known.model_copy(update={"obstacle": self.find_obstacle(known.plan, self.plan) or ""})

    def _first_step(self, proposal: PlanProposal, now: float) -> SpecChange | None:
        """Returns the change to fewer cells, which serve the load and leave slots for another plan, or None."""
        window = self.arrivals.window(self.settings.limits.shrink_window, now)
        arriving = float("inf") if window is None else sum(window.counts.values()) / window.seconds
        counts = Counter(self.plan.counts)
        rates = {cell.gpus: cell.rate for cell in self.plan.cells}
        while counts.total() > 1:
            counts -= Counter({min(counts, key=lambda size: rates[size]): 1})
            kept = self.plan.with_counts(counts, self.plan.target)
            if kept.rate * proposal.rate_now < arriving * self.plan.rate:  # The planned rate is not that of this mix.
                return None
            if self.find_obstacle(proposal.plan, kept) is None:
                self._next = kept, proposal
                return self._changed_to(kept, f"another plan follows, because {proposal.reason}")
        return None

    def _second_step(self, proposal: PlanProposal, now: float) -> SpecChange | None:
        """Returns the change to the other plan when the removed cells have ended. Later, it is not made any more."""
        if self.find_obstacle(proposal.plan, self.plan) is None:
            return self._changed_to(proposal.plan, proposal.reason)
        if now > self.since + self.settings.dwell_seconds:
            self._next = None
        return None

    def _changed_to(self, plan: AppPlan, reason: str) -> SpecChange:
        self._decided = plan
        return SpecChange(
            {"plan": plan, "model": self.record.spec.model, "held_until": None},
            f"{reason}: runs {_describe(plan)} instead of {_describe(self.plan)}",
        )

    def news(self, before: AdaptationStatus) -> Iterator[tuple[str, str]]:
        proposal, shift, other = self.status.proposal, self.status.mix_shift, self.status.plan_proposal
        if other is not None and before.plan_proposal is None:
            waits = f"cannot replace the running cells: {other.obstacle}" if other.obstacle else "wait for an approval"
            yield "AdaptationProposed", f"{other.reason}: {_describe(other.plan)} {waits}"
        if proposal is not None and before.proposal is None:
            cells = _describe(self.plan.with_counts(proposal.counts, proposal.target))
            yield "AdaptationProposed", f"{proposal.reason}: {cells} wait for an approval"
        if shift is not None and before.mix_shift is None:
            yield "MixShifted", f"{shift.distance:.0%} of the requests have another type than planned"

    def publish(self, metrics: ControllerMetrics, now: float) -> None:
        metrics.set_rates(self.record.name, self._rates(now))

    def _solve(self, rate: float) -> Mapping[int, int]:
        """Returns the cells that serve the rate on the fewest GPUs, or as much of it as there are slots."""
        rates, used, most = self.plan.efficient_rates, self.plan.used_gpus, self._most_gpus()

        def may_run(counts: Mapping[int, int]) -> bool:
            if sum(used[size] * count for size, count in counts.items()) > most:
                return False  # The check of a plan takes long.
            return self.find_obstacle(self.plan.with_counts(counts, rate), self.plan) is None

        return cells_within(rates, rate, self.plan.counts, may_run, most_cells=MAX_RUNNING_CELLS)

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
        """Returns the planned and the observed requests per second of each type, over the longest short window.

        Nothing before the first window is over.
        """
        window = self.arrivals.window(self.settings.limits.shrink_window, now)
        if window is None:
            return {}
        observed = {name: count / window.seconds for name, count in window.counts.items()}
        planned = {name: kind.share * self.plan.rate for name, kind in self.plan.types.items()}
        return {name: (planned.get(name, 0.0), observed.get(name, 0.0)) for name in planned | observed}


def _describe(plan: AppPlan) -> str:
    """Returns the running cells for users, such as `2 × 4 GPUs, 1 × 1 GPU (9 GPUs, 21 requests/s)`."""
    return f"{describe_cells(plan.counts)} ({plan.gpus} GPUs, {plan.rate:.4g} requests/s)"


def _mix_shift(planned: Mapping[str, float], observed: ObservedMix) -> MixShift:
    shares = [
        TypeShare(type=name, planned=round(planned.get(name, 0.0), 3), observed=round(share, 3))
        for name, share in sorted(observed.shares.items())
    ]
    return MixShift(distance=round(observed.distance, 3), shares=shares)
