"""The dataflow between the invocations of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from cornserve.gateway.request_invocation import RequestInvocation

Node = TypeVar("Node")


class DataflowGraph(Generic[Node]):
    """A graph with a node for each invocation of a request and an edge for each consumed output."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        """The nodes, in the order of the invocations' indices."""
        self._producers: list[Sequence[Node]] = []
        self._consumers: list[list[Node]] = []

    def add(self, invocation: RequestInvocation, node: Node) -> None:
        """Adds the invocation that follows those added before."""
        indices = sorted({origin.invocation for origin in invocation.origins}) if invocation.origins else ()
        for index in indices:
            self._consumers[index].append(node)
        self._producers.append([self.nodes[index] for index in indices])
        self._consumers.append([])
        self.nodes.append(node)

    def producers(self, invocation: RequestInvocation) -> Sequence[Node]:
        """Returns the nodes whose outputs the invocation consumes."""
        return self._producers[invocation.index]

    def consumers(self, invocation: RequestInvocation) -> Sequence[Node]:
        """Returns the nodes that consume the invocation's outputs."""
        return self._consumers[invocation.index]

    def clear(self) -> None:
        self.nodes, self._producers, self._consumers = [], [], []
