"""Plans for nodes and the network between them ([C] Appendix A), with traffic tied to the positions of replicas.

As printed, Appendix A has variables `y[s, h]` for the replicas of an executor on a node, and `f[s, s', h, h']` for the
bandwidth of an edge between two nodes, but no constraint that contains both. Constraint (7) only requires that an
edge's traffic adds up over *all* pairs of nodes, and pairs (h, h) are not limited. So all traffic may flow within a
node that has no replica of either executor, and the bandwidth never limits a plan. This module connects them with rates
`z[t, p, s, h]` of a path at an executor on a node, and `q[t, p, b, h...]` of a path at all executors of a bag b on one
node each, in place of (5) and (7):

    Σ_h z[t, p, s, h] = x[t, p]                               each request visits each executor of its path on a node
    Σ_{t, p} z[t, p, s, h] / w[s, t, p] ≤ y[s, h]             replicas limit the work on their node
    Σ_{h...: h_s = h} q[t, p, b, h...] = z[t, p, s, h]        for each executor s of the bag b
    Σ_{t, p, (s, s')} b[t, p, s, s'] · Σ_{h...: h_s = h, h_s' = h'} q[t, p, b, h...] ≤ B[h, h']       for h ≠ h', in
                                                              place of (8), where the bag b contains s and s'

Rates, in requests per second, are separate for each type and path. If they were summed, the traffic of two paths could
be exchanged and would not cross a link that both paths cross.

The bags of a path are those of a tree decomposition of its edges. In a chain or a tree, each edge is a bag. Edges that
form a cycle, such as a → b, b → c and a → c, share bags: a request between two nodes on a → b and within a node on
b → c is between two nodes on a → c. With rates per edge, requests could be combined as no request can be. Bags that
share several executors agree on the rates at their nodes, so rates at all executors together exist (junction tree
theorem: S. L. Lauritzen, Graphical Models, 1996, section 2.1).

With many nodes, the proof takes longer than the search for a plan. The optimum without topology is found faster, and is
an upper bound of all placements. It is therefore solved first. If its replicas can be placed so that the network
carries the traffic, the placement is optimal. Otherwise, its value is given to the solver as a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cornserve_planner.errors import InfeasibleError
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Loss, Objective, Solution
from cornserve_planner.solve import optimization
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.placement_search import SLACK, NodeFlow, PlacementSearch
from cornserve_planner.solve.solver import SolverSettings
from cornserve_planner.solve.topology_milp import Traffic


@dataclass(frozen=True, slots=True)
class PlacedPlan:
    """A plan and the nodes of its replicas.

    Args:
        replicas: by option, the number on each node.
        flows: traffic between nodes.
        unconstrained: value of the objective without network limits, which no placement exceeds.
    """

    plan: Solution
    replicas: Mapping[str, tuple[int, ...]]
    flows: tuple[NodeFlow, ...]
    unconstrained: float

    def bytes_per_second(self, start: int, end: int) -> float:
        """Returns the traffic from one node to another."""
        return math.fsum(flow.bytes_per_second for flow in self.flows if (flow.start, flow.end) == (start, end))


def max_rate(
    problem: PlanningProblem,
    cluster: Cluster,
    traffic: Traffic,
    solver: SolverSettings | None = None,
    survive: Loss | None = None,
) -> PlacedPlan:
    """Returns the plan and placement with the highest rate on a cluster, without unused replicas. With `survive`, this
    rate is also served after the loss.

    If the time limit is reached before the proof, `Plan.bound` limits the distance from the optimum.

    Raises `InfeasibleError` if nothing can be served, and `NoPlanFoundError` if the time limit is too short.
    """
    solver, problem = solver or SolverSettings(), problem.without_utilization_limits
    unconstrained = optimization.max_rate(problem, Budget(gpus=sum(cluster.gpus)), solver)
    search = PlacementSearch(problem, cluster, traffic, solver, survive, around=unconstrained.rate)
    served, bound = search.placed(unconstrained), unconstrained.bound
    if served is None or served.rate < unconstrained.rate * (1 - SLACK):
        other, bound = search.best_rate(unconstrained)
        served = max(filter(None, (served, other)), key=lambda entry: entry.rate, default=None)
    if served is None:
        raise search.out_of_time()
    if served.rate <= unconstrained.rate * SLACK:
        raise search.nothing_served()
    served = search.without_unused(served)
    bound, relaxation = max(served.rate, bound), max(served.rate, search.relaxed_rate())
    return PlacedPlan(
        plan=search.plan(Objective.RATE, served, served.rate, bound, relaxation),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=unconstrained.value,
    )


def min_gpus(
    problem: PlanningProblem,
    cluster: Cluster,
    traffic: Traffic,
    rate: float,
    solver: SolverSettings | None = None,
    survive: Loss | None = None,
) -> PlacedPlan:
    """Returns the plan and placement with the fewest GPUs for a rate: the objective of [C App. A]. With `survive`, the
    rate is also served after the loss.

    Raises `InfeasibleError` with the highest possible rate if the cluster cannot serve `rate`; other errors as
    `max_rate`.
    """
    solver, problem = solver or SolverSettings(), problem.without_utilization_limits
    unconstrained = optimization.min_gpus(problem, rate, Budget(gpus=sum(cluster.gpus)), solver)
    search = PlacementSearch(problem, cluster, traffic, solver, survive, around=rate)
    found = search.fewest_gpus(rate, unconstrained)
    if found is None:
        best = max_rate(problem, cluster, traffic, solver, survive)
        after = f" after the loss of a {survive}" if survive else ""
        raise InfeasibleError(
            "bandwidth",
            f"{rate:g} requests/s are requested, but these nodes and their network serve at most {best.plan.bound:.4g}"
            f"{after} (without network limits: {best.unconstrained:.4g})",
        )
    placement, bound = found
    served, gpus = placement.scaled_to(min(rate, placement.rate)), float(search.gpus(placement))
    bound = min(gpus, bound)
    return PlacedPlan(
        plan=search.plan(Objective.GPUS, served, gpus, bound, min(gpus, unconstrained.relaxation)),
        replicas=served.replicas,
        flows=served.flows,
        unconstrained=unconstrained.value,
    )
