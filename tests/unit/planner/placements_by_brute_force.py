"""Placements of small problems on nodes, found by enumeration.

Each option on each node is a separate option, and each link is an option with one replica. Each path becomes several
paths, one for every choice of nodes of its options.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

from cornserve_planner.model.graph import DeploymentOption, Edge
from cornserve_planner.model.problem import PlanningProblem, RequestPath
from cornserve_planner.model.solution import Loss
from cornserve_planner.solve.capacity import capacity
from cornserve_planner.solve.cluster import Cluster
from cornserve_planner.solve.topology_milp import Traffic

Placed = tuple[tuple[str, int], ...]
"""The option and the node of each replica."""


def random_traffic(problem: PlanningProblem, rng: Random) -> dict[str, dict[Edge, float]]:
    """Returns bytes for most pairs of options of each path, so that paths of three options often form triangles."""
    return {
        path.name: {
            edge: rng.choice([1.0, 1.0, 2.0]) for edge in itertools.combinations(path.seconds, 2) if rng.random() < 0.85
        }
        for path in problem.paths
    }


def random_cluster(rng: Random) -> Cluster:
    """Returns two or three nodes with one or two GPUs each, and slow links."""
    gpus = rng.choice([(1, 2), (2, 2), (1, 1, 1), (2, 1)])
    speeds = (0.0, 0.5, 1.0, 2.0, math.inf)
    return Cluster(gpus, tuple(tuple(rng.choice(speeds) for _ in gpus) for _ in gpus))


def best_rate(problem: PlanningProblem, cluster: Cluster, traffic: Traffic, survive: Loss | None) -> float:
    """Returns the highest rate of all placements."""
    apart = _with_options_per_node(problem, cluster, traffic)
    return max(
        min(_rate(apart, left) for left in _after_losses(placed, survive)) for placed in _placements(problem, cluster)
    )


def _placements(problem: PlanningProblem, cluster: Cluster) -> Iterator[Placed]:
    """Yields all placements to which no replica can be added."""
    spots = [(option, node) for node in range(len(cluster.gpus)) for option in problem.options]
    counts = itertools.product(*(range(cluster.gpus[node] // option.gpus + 1) for option, node in spots))
    smallest = min(option.gpus for option in problem.options)
    for count in counts:
        used = [0] * len(cluster.gpus)
        for n, (option, node) in zip(count, spots, strict=True):
            used[node] += n * option.gpus
        if all(gpus - smallest < n <= gpus for n, gpus in zip(used, cluster.gpus, strict=True)):
            yield tuple((option.name, node) for n, (option, node) in zip(count, spots, strict=True) for _ in range(n))


def _after_losses(placed: Placed, survive: Loss | None) -> list[Placed]:
    match survive:
        case Loss.REPLICA:
            return [placed[:index] + placed[index + 1 :] for index in range(len(placed))]
        case Loss.NODE:
            nodes = {node for _, node in placed}
            return [tuple(entry for entry in placed if entry[1] != lost) for lost in nodes]
        case None:
            return [placed]


def _rate(apart: PlanningProblem, placed: Placed) -> float:
    replicas = {option.name: 1 for option in apart.options if option.name.startswith("link")}
    for name, node in placed:
        replicas[f"{name}@{node}"] = replicas.get(f"{name}@{node}", 0) + 1
    return capacity(apart, replicas)[0]


def _with_options_per_node(problem: PlanningProblem, cluster: Cluster, traffic: Traffic) -> PlanningProblem:
    nodes = range(len(cluster.gpus))
    paths = [
        RequestPath(path.type, f"{path.name}@{chosen}", seconds)
        for path in problem.paths
        for chosen in itertools.product(nodes, repeat=len(path.seconds))
        if (seconds := _seconds(path, dict(zip(path.seconds, chosen, strict=True)), cluster, traffic)) is not None
    ]
    names = [f"{option.name}@{node}" for option in problem.options for node in nodes]
    names += [f"link{start}.{end}" for start, end in cluster.links]
    limits = {f"{name}@{node}": limit for name, limit in problem.max_utilization.items() for node in nodes}
    options = tuple(DeploymentOption(name, ("any",)) for name in names)
    return PlanningProblem(options, problem.shares, tuple(paths), max_utilization=limits)


def _seconds(path: RequestPath, nodes: dict[str, int], cluster: Cluster, traffic: Traffic) -> dict[str, float] | None:
    """Returns the seconds on options and links; None if a link does not exist."""
    seconds = {f"{name}@{nodes[name]}": each for name, each in path.seconds.items()}
    for (producer, consumer), size in traffic(path).items():
        start, end = nodes[producer], nodes[consumer]
        if start == end or math.isinf(bandwidth := cluster.bandwidth[start][end]):
            continue
        if bandwidth == 0:
            return None
        link = f"link{start}.{end}"
        seconds[link] = seconds.get(link, 0.0) + size / bandwidth
    return seconds
