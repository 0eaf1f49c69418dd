"""Nodes with GPUs, and the network between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cornserve_planner.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes h in H of [C App. A].

    Args:
        gpus: GPUs of each node, |G_h|.
        bandwidth: bytes/s from each node (row) to each other node (column), B_{h,h'}; infinite for no limit. The
            diagonal is ignored.
    """

    gpus: tuple[int, ...]
    bandwidth: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InvalidInputError("cluster.gpus", "must not be empty: give the number of GPUs of each node")
        for node, gpus in enumerate(self.gpus):
            if gpus < 0:
                raise InvalidInputError(f"cluster.gpus.{node}", f"must be at least 0, not {gpus}")
        nodes = len(self.gpus)
        if len(self.bandwidth) != nodes or any(len(row) != nodes for row in self.bandwidth):
            found = [len(row) for row in self.bandwidth]
            raise InvalidInputError(
                "cluster.bandwidth",
                f"must have {nodes} rows and {nodes} columns, one for each node, not rows of {found}",
            )
        for start, end in self.links:
            if math.isnan(self.bandwidth[start][end]) or self.bandwidth[start][end] < 0:
                where = f"cluster.bandwidth.{start}.{end}"
                raise InvalidInputError(where, f"must be at least 0, not {self.bandwidth[start][end]}")

    @classmethod
    def uniform(cls, nodes: int, gpus: int, bandwidth: float) -> Cluster:
        """Returns a cluster of equal nodes with the same bandwidth, in bytes/s, between all pairs."""
        return cls((gpus,) * nodes, ((float(bandwidth),) * nodes,) * nodes)

    @property
    def links(self) -> list[tuple[int, int]]:
        """Pairs of different nodes."""
        nodes = range(len(self.gpus))
        return [(start, end) for start in nodes for end in nodes if start != end]
