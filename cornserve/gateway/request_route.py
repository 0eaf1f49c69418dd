"""Routes as requests use them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cornserve.app.record import Route
from cornserve.app.settings import AppPolicies
from cornserve_plan.fields import Binding
from cornserve_policies.path_table import PATH_DRAWS, CellPath, PathTable
from cornserve_policies.registry import DEFAULT_ROUTING, UnknownPolicyError, routing_policy
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import LeastLoadedRouting, RoutingPolicy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """The route of one version of an app. A request uses the same one from its start to its end."""

    generation: int
    shares: Sequence[float]
    """The share of requests of each path."""
    groups: Mapping[str, str]
    """The executor group that runs each executor, by the executor's key. Empty with a plan: see `cell_groups`."""
    endpoints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The last known endpoints of each executor group. They stay usable while the executors drain."""
    routing: RoutingPolicy = field(default_factory=LeastLoadedRouting)
    """Selects a replica for each invocation."""
    policies: AppPolicies = field(default_factory=AppPolicies)
    plan: PathTable | None = None
    """Cells and paths by request type. It replaces `shares`."""
    cell_groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The executor group that runs each executor in a cell of the plan, by the cell's name and the executor's key."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The deployment options of the plan, by the key of their executor."""
    bindings: Mapping[str, Sequence[Mapping[str, Binding]]] = field(default_factory=dict)
    """The bindings of the plan by the executor's key, for each path, by request type."""

    @classmethod
    def of(cls, route: Route) -> RequestRoute:
        return cls(
            route.generation,
            route.shares,
            route.groups,
            routing=_routing_policy(route),
            policies=route.spec.policies,
            plan=None if route.plan is None else route.plan.path_table(),
            cell_groups={} if route.plan is None else {cell.name: cell.groups for cell in route.plan.cells},
            options={} if route.plan is None else route.plan.options,
            bindings={} if route.plan is None else route.plan.bindings,
        )

    @property
    def path_draws(self) -> int:
        """The draws that are kept for `draw_path`, because it runs after the task has started: with a plan."""
        return 0 if self.plan is None else PATH_DRAWS

    def draw_path(self, request_type: str | None, random: ReplayableRandom) -> CellPath:
        """Draws the path of a request, and with a plan a cell.

        Args:
            request_type: the type in the plan; None if the plan has no such type, or without a plan.
        """
        if self.plan is None:
            return CellPath("", "", random.choose(self.shares))
        return self.plan.choose(request_type, random)

    def bindings_of(self, drawn: CellPath) -> Mapping[str, Binding]:
        """Returns the bindings of the plan on a path, by the executor's key."""
        of_type = self.bindings.get(drawn.request_type)
        return {} if of_type is None else of_type[drawn.path]

    @property
    def group_keys(self) -> set[str]:
        """The executor groups, of all cells."""
        return {group for groups in (self.groups, *self.cell_groups.values()) for group in groups.values()}

    def successors(self, newer: RequestRoute) -> dict[str, str]:
        """Returns the group of a newer route that runs the executor of each group which that route lacks."""
        groups, known = newer.groups_by_place, newer.group_keys
        return {
            group: groups[place]
            for place, group in self.groups_by_place.items()
            if group not in known and place in groups
        }

    @property
    def groups_by_place(self) -> dict[tuple[str, str], str]:
        """The executor groups by the name of the cell, which is empty without a plan, and the executor's key."""
        cells = {"": self.groups, **self.cell_groups}
        return {(cell, key): group for cell, groups in cells.items() for key, group in groups.items()}

    def with_endpoints(self, endpoints: Mapping[str, Sequence[str]]) -> RequestRoute:
        """Returns the route with newer endpoints of its groups. Groups without newer endpoints keep the old ones.

        Endpoints of other groups are left out, because connections to them would delay the end of their executors.
        """
        known = {
            group: group_endpoints
            for group in self.group_keys
            if (group_endpoints := endpoints.get(group, self.endpoints.get(group))) is not None
        }
        return self if known == self.endpoints else replace(self, endpoints=known)


def _routing_policy(route: Route) -> RoutingPolicy:
    """Returns the policy. A policy whose package is missing here must not stop the app: the default replaces it."""
    try:
        return routing_policy(route.spec.policies.routing)
    except UnknownPolicyError as error:
        log.error("%s is used instead: %s", DEFAULT_ROUTING, error)
        return routing_policy(DEFAULT_ROUTING)
