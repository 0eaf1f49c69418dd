"""Policies by name: those of this package, and those of other packages by entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from cornserve_policies.replica_routing import (
    LeastLoadedRouting,
    LeastTokensRouting,
    PowerOfTwoRouting,
    RoutingPolicy,
    StaticRouting,
)

DEFAULT_ROUTING: Final = "least-loaded"

ROUTING_ENTRY_POINTS: Final = "cornserve.routing_policies"

_ROUTING: Final[Mapping[str, Callable[[], RoutingPolicy]]] = {
    "least-loaded": LeastLoadedRouting,
    "least-tokens": LeastTokensRouting,
    "power-of-two": PowerOfTwoRouting,
    "static": StaticRouting,
}


class UnknownPolicyError(ValueError):
    """No installed package has a policy of this name, or it cannot be loaded."""


def routing_policy_names() -> list[str]:
    """Returns the names of all routing policies that are installed."""
    return sorted({*_ROUTING, *entry_points(group=ROUTING_ENTRY_POINTS).names})


def routing_policy(name: str) -> RoutingPolicy:
    """Returns a new policy. Raises `UnknownPolicyError`."""
    if name in _ROUTING:
        return _ROUTING[name]()
    found = [*entry_points(group=ROUTING_ENTRY_POINTS, name=name)]
    if not found:
        known = ", ".join(routing_policy_names())
        raise UnknownPolicyError(f"unknown routing policy {name!r}: use one of {known}")
    try:
        policy: RoutingPolicy = found[0].load()()
    except Exception as error:
        raise UnknownPolicyError(f"cannot load the routing policy {name!r}: {found[0].value}: {error}") from error
    return policy
