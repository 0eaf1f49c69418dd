"""Budgets of groups of tests: CPU time and memory. `tests/budgets.toml` contains them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

FILE: Final = "tests/budgets.toml"
HEADROOM: Final = 2
"""A budget that is set from a measurement is twice the measurement."""


class Tier(StrEnum):
    FAST = "fast"
    """Tests without the marker `slow`: `make test`."""
    SLOW = "slow"
    """Tests with the marker `slow`: the rest of `make test-all`."""


@dataclass(frozen=True)
class Cost:
    cpu_seconds: int
    memory_mib: int

    def excess(self, budget: Cost) -> str:
        """Returns what exceeds the budget, or an empty string."""
        parts = []
        if self.cpu_seconds > budget.cpu_seconds:
            parts.append(f"{self.cpu_seconds} CPU s (budget {budget.cpu_seconds})")
        if self.memory_mib > budget.memory_mib:
            parts.append(f"{self.memory_mib} MiB (budget {budget.memory_mib})")
        return ", ".join(parts)


class Budgets:
    """The budgets of a tier."""

    def __init__(self, default: Cost, groups: Mapping[str, Cost]) -> None:
        self.default = default
        self.groups = groups

    def of(self, group: str) -> Cost:
        return self.groups.get(group, self.default)


def load_budgets(tier: Tier, file: Path) -> Budgets:
    section = tomllib.loads(file.read_text())[tier]
    return Budgets(_cost(section["default"]), {name: _cost(cost) for name, cost in section["groups"].items()})


def set_budgets(tier: Tier, measured: Mapping[str, Cost], file: Path) -> None:
    """Sets the budgets of groups to twice their measured costs, but not below the default."""
    comment = file.read_text().partition("[")[0]
    tiers = {tier: load_budgets(tier, file) for tier in Tier}
    default = tiers[tier].default
    groups = {name: cost for name, cost in tiers[tier].groups.items() if name not in measured}
    for name, cost in measured.items():
        budget = Cost(
            max(default.cpu_seconds, HEADROOM * cost.cpu_seconds), max(default.memory_mib, HEADROOM * cost.memory_mib)
        )
        if budget != default:
            groups[name] = budget
    tiers[tier] = Budgets(default, groups)
    file.write_text(comment + "\n".join(_section(name, budgets) for name, budgets in tiers.items()))


def _cost(fields: Mapping[str, Any]) -> Cost:
    return Cost(**fields)


def _section(tier: Tier, budgets: Budgets) -> str:
    lines = [f"[{tier}]", f"default = {_inline(budgets.default)}", "", f"[{tier}.groups]"]
    lines += [f'"{name}" = {_inline(cost)}' for name, cost in sorted(budgets.groups.items())]
    return "\n".join(lines) + "\n"


def _inline(cost: Cost) -> str:
    return f"{{ cpu_seconds = {cost.cpu_seconds}, memory_mib = {cost.memory_mib} }}"
