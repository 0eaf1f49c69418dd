"""Divides the slow tests among slices of similar costs. CI runs one slice for each commit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

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
        """Returns the groups in this slice. Each group is in one slice, which does not depend on the other groups.

        Groups that the budgets name, which are the most expensive ones, are dealt to the slices in turn. The
        others follow their names.
        """
        expensive = sorted(budgets.groups, key=lambda group: (-budgets.of(group).cpu_seconds, group))
        numbers = {group: number for number, group in enumerate(expensive)}
        return {group for group in groups if numbers.get(group, crc32(group.encode())) % self.count == self.number - 1}
