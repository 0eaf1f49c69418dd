"""The latency targets of requests, which may differ by type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cornserve_planner.errors import InvalidInputError, require_positive

KINDS = ("ttft", "tbt", "e2e")

STEP_SHARE = 0.25
"""The part of the TTFT that a step or a batch takes at most which does not decode. A request waits for a running one,
and passes through an encoder and a prefill [T §4.2, with α = β = 0.5 for both, which leaves no time for queues]."""

PERCENTILE = 95.0
"""The percentage of requests that meet their targets by default."""


@dataclass(frozen=True, slots=True)
class GoodputTargets:
    """Seconds until the first output, between two tokens on average, and until the end of a response.

    Args:
        seconds: by kind of target, the seconds by request type. The type `""` stands for all others.
        percentile: percentage of the requests that meet all of their targets.
    """

    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    percentile: float = PERCENTILE

    def __post_init__(self) -> None:
        for kind, of_types in self.seconds.items():
            for name, target in of_types.items():
                require_positive(f"--{kind}{' ' * bool(name)}{name}", target)
        if not 0 < self.percentile < 100:
            raise InvalidInputError("--percentile", f"must be between 0 and 100, not {self.percentile:g}")

    def __bool__(self) -> bool:
        """Returns whether there is a target."""
        return any(self.seconds.values())

    def of(self, request_type: str, kind: str) -> float | None:
        """Returns the target of a type."""
        of_types = self.seconds.get(kind, {})
        return of_types.get(request_type, of_types.get(""))

    @property
    def step_seconds(self) -> float | None:
        """The seconds that a step or a batch takes at most which does not decode."""
        ttft = self.least("ttft")
        return None if ttft is None else STEP_SHARE * ttft

    def texts(self, kind: str) -> list[str]:
        """Returns the targets of a kind in the form of the command line."""
        return [f"{name}={target:g}" if name else f"{target:g}" for name, target in self.seconds.get(kind, {}).items()]

    def least(self, kind: str) -> float | None:
        """Returns the shortest target of all types."""
        return min(self.seconds.get(kind, {}).values(), default=None)

    def check_types(self, types: Mapping[str, object]) -> None:
        """Raises `InvalidInputError` for a target of an unknown type."""
        for kind, of_types in self.seconds.items():
            if unknown := sorted(of_types.keys() - types.keys() - {""}):
                raise InvalidInputError(f"--{kind}", f"{unknown[0]!r} is not a request type: use {', '.join(types)}")
