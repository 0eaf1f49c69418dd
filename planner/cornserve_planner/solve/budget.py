"""What a plan may use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cornserve_planner.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on what a plan uses. None is no limit.

    Args:
        gpus: of all types together.
        gpus_of: of single types, by name.
        dollars: per hour.
    """

    gpus: int | None = None
    gpus_of: Mapping[str, int] = field(default_factory=dict)
    dollars: float | None = None

    def __post_init__(self) -> None:
        limits = {"gpus": self.gpus, "dollars": self.dollars, **{f"gpus.{name}": n for name, n in self.gpus_of.items()}}
        for where, limit in limits.items():
            if limit is not None and not (math.isfinite(limit) and limit >= 0):
                raise InvalidInputError(f"budget.{where}", f"has to be a number of at least 0, not {limit}")

    def __str__(self) -> str:
        """As errors tell it: `8 GPUs, of which 4 H100`."""
        parts = [] if self.gpus is None else [f"{self.gpus} GPU{'s' * (self.gpus != 1)}"]
        parts += [f"{limit} {name}" for name, limit in self.gpus_of.items()]
        parts += [] if self.dollars is None else [f"${self.dollars:g} an hour"]
        return ", ".join(parts) or "no limit"
