"""Routes as requests use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cornserve.app.record import Balance, Route


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """The route of one version of an app. A request uses the same one from its start to its end."""

    generation: int
    shares: Sequence[float]
    """The share of requests of each path."""
    groups: Mapping[str, str]
    """The executor group that runs each executor, by the executor's key."""
    endpoints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The last known endpoints of each executor group. They stay usable while the executors drain."""
    balance: Balance = "least-loaded"

    @classmethod
    def of(cls, route: Route) -> RequestRoute:
        return cls(route.generation, route.shares, route.groups, balance=route.spec.balance)

    def with_endpoints(self, endpoints: Mapping[str, Sequence[str]]) -> RequestRoute:
        """Returns the route with newer endpoints of its groups. Groups without newer endpoints keep the old ones."""
        newer = {group: endpoints[group] for group in self.groups.values() if group in endpoints}
        known = {**self.endpoints, **newer}
        return self if known == self.endpoints else replace(self, endpoints=known)
