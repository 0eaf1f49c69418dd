"""The seconds until started replicas serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from cornserve_planner.plan_file.document import PlanFile


class ReplicaStartups:
    """
    Args:
        given: the times of all options, of which each start takes a random one.
        measured: the times of some options, in the same way, if none are given. Others take the time of the plan.
        seed: starts with one seed take the same times.
    """

    def __init__(
        self, plan: PlanFile, given: Sequence[float] | None, measured: Mapping[str, Sequence[float]], seed: int
    ) -> None:
        self._plan = plan
        self._given = given
        self._measured = measured
        self._random = Random(seed)

    def of(self, option: str) -> float:
        """Returns the seconds of the next start of a replica of an option."""
        known = self._given or self._measured.get(option)
        return self._random.choice(known) if known else self._plan.options[option].startup or 0.0

    def longest(self, options: Iterable[str]) -> float:
        """Returns the seconds until one replica of each option serves."""
        return max((self.of(option) for option in options), default=0.0)
