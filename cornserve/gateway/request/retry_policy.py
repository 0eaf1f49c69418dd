"""Decides whether a failed attempt of an invocation is retried. `Dispatcher` starts the next attempt."""

from __future__ import annotations

from cornserve.gateway.request.invocation_execution import InvocationExecution
from cornserve.gateway.request.replica_connection import ReplicaConnection

MAX_EXECUTOR_DEATHS = 1
"""The number of executors that may die during one request. A limit keeps one request from killing all executors."""

MAX_INPUT_LOSSES = 3
"""The number of attempts of one invocation that may find their input tensors lost."""


class RetryPolicy:
    """The retry decisions of one request."""

    def __init__(self) -> None:
        self.dead_replicas: set[ReplicaConnection] = set()
        """Replicas whose executors have died during this request."""

    @property
    def is_exhausted(self) -> bool:
        """Whether more executors have died than a request may survive."""
        return len(self.dead_replicas) > MAX_EXECUTOR_DEATHS

    def allows(self, execution: InvocationExecution, code: str, *, has_replica: bool) -> bool:
        """Returns whether to retry after `code`. `has_replica`: a reachable replica has not refused the invocation."""
        match code:
            case "UNAVAILABLE":
                return True
            case "RESOURCE_EXHAUSTED":
                return has_replica
            case "ABORTED":
                return not self.is_exhausted and execution.is_resumable
        return False
