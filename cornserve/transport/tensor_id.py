"""Which tensor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorId:
    """An output of one attempt at one invocation, and the process where that runs."""

    endpoint: str
    """`HOST:PORT` by which that process is known: it takes lines at the port that follows."""
    request_id: str
    invocation: int
    attempt: int
    output: str

    def __str__(self) -> str:
        return (
            f"output {self.output!r} of invocation {self.invocation} (attempt {self.attempt}) "
            f"of request {self.request_id} at {self.endpoint}"
        )
