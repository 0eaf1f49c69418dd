"""Divides the slow tests among slices of about equal costs. CI runs one slice for each commit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.costs.budgets import Budgets


@dataclass(frozen=True)
class Slice:
    """`3/8` is the third of eight slices."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Slice:
        match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
        if match is None or int(match[1]) > int(match[2]):
            raise ValueError(f"{text!r} is not a slice, such as 3/8")
        return cls(int(match[1]), int(match[2]))

    def groups(self, groups: Iterable[str], budgets: Budgets) -> set[str]:
        """Returns the groups in this slice. Each group is in one slice; budgets serve as estimates of the costs."""
        slices: list[set[str]] = [set() for _ in range(self.count)]
        costs = [0] * self.count
        for group in sorted(set(groups), key=lambda group: (-budgets.of(group).cpu_seconds, group)):
            lightest = costs.index(min(costs))
            slices[lightest].add(group)
            costs[lightest] += budgets.of(group).cpu_seconds
        return slices[self.number - 1]
