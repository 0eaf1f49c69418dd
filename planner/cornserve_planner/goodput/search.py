"""Finds the candidate with the highest goodput: a bound without queues discards most, and replay decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.goodput.candidates import PlanCandidate
from cornserve_planner.goodput.replay import GoodputInterval, Replay, ReplayedSystem

FEW_REQUESTS = 2_000
"""Requests of the first simulations of a candidate."""

FINALISTS = 3

SIMILAR = 0.97
"""Candidates with at least this part of the best goodput of few requests are compared with more requests."""

SystemOf = Callable[[PlanCandidate], ReplayedSystem]
"""Returns the system of a candidate."""


@dataclass(frozen=True, slots=True)
class ReplayedCandidate:
    """
    Args:
        requests: the simulated requests; 0 if the bound has decided.
        goodput: requests per second that meet the targets. None if it is only known to be below `most`.
        most: an upper limit of the goodput.
    """

    candidate: PlanCandidate
    requests: int
    goodput: GoodputInterval | None
    most: float

    @property
    def value(self) -> float:
        return self.most if self.goodput is None else self.goodput.value


class GoodputSearch:
    """
    Args:
        on_progress: gets a description of each step.
    """

    def __init__(
        self,
        replay: Replay,
        system_of: SystemOf,
        on_progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._replay = replay
        self._system_of = system_of
        self._on_progress = on_progress
        self._few = min(FEW_REQUESTS, len(replay.requests))

    def rank(self, candidates: Iterable[PlanCandidate]) -> list[tuple[PlanCandidate, float, bool]]:
        """Returns the candidates with the goodputs of few requests, and whether these are only upper limits."""
        best, found = 0.0, []
        for candidate in candidates:
            if candidate.bound < best * SIMILAR:
                found.append((candidate, candidate.bound, True))
                continue
            self._on_progress(f"{describe(candidate)}: {self._few:,} requests")
            system = self._system_of(candidate)
            if best and not self._replay.meets(system, best * SIMILAR, 0, self._few):
                found.append((candidate, best * SIMILAR, True))
                continue
            goodput = self._replay.goodput(system, best or candidate.bound, 0, self._few)
            best = max(best, goodput)
            found.append((candidate, goodput, False))
        return found

    def most_goodput(self, candidates: Iterable[PlanCandidate]) -> list[ReplayedCandidate]:
        """Returns all candidates, the best one first.

        Raises `InfeasibleError` if no candidate meets the targets at any rate.
        """
        ranked = self.rank(candidates)
        best = max((goodput for _, goodput, is_limit in ranked if not is_limit), default=0.0)
        if not best:
            raise InfeasibleError("the latency targets", "no candidate meets them, even at a low rate: raise them")
        close = sorted((each for each in ranked if not each[2]), key=lambda each: -each[1])
        finalists = [each[0] for each in close[:FINALISTS] if each[1] >= best * SIMILAR]
        found = []
        for candidate, goodput, is_limit in ranked:
            if candidate in finalists:
                count = len(self._replay.requests)
                self._on_progress(f"{describe(candidate)}: {count:,} requests")
                interval = self._replay.interval(self._system_of(candidate), goodput)
                found.append(ReplayedCandidate(candidate, count, interval, interval.high))
            else:
                was_simulated = not is_limit or goodput < candidate.bound
                found.append(ReplayedCandidate(candidate, self._few * was_simulated, None, goodput))
        return sorted(found, key=lambda each: (each.goodput is None, -each.value))

    def serves(self, candidates: Iterable[PlanCandidate], rate: float) -> ReplayedCandidate | None:
        """Returns the first candidate that meets the targets at a rate."""
        for candidate in candidates:
            if candidate.bound < rate:
                continue
            self._on_progress(f"{describe(candidate)}: {rate:g} requests/s")
            system, count = self._system_of(candidate), len(self._replay.requests)
            if all(self._replay.meets(system, rate, 0, last) for last in dict.fromkeys((self._few, count))):
                return ReplayedCandidate(candidate, count, GoodputInterval(rate, rate, rate), rate)
        return None


def describe(candidate: PlanCandidate) -> str:
    """Returns the replicas of a candidate, such as `2 × E, 3 × P`."""
    return ", ".join(f"{count} × {name}" for name, count in candidate.replicas.items())
