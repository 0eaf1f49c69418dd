"""Which tensor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """An output of one attempt at one invocation, and the process where that runs."""

    endpoint: str
    """`HOST:PORT` of its gRPC server."""
    request_id: str
    invocation: int
    attempt: int
    output: str

    def __str__(self) -> str:
        return (
            f"output {self.output!r} of invocation {self.invocation} (attempt {self.attempt}) "
            f"of request {self.request_id} at {self.endpoint}"
        )
