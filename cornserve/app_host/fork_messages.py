"""Messages between a fork server and its parent, one in each packet of a Unix socket."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

MAX_MESSAGE_BYTES = 64 << 10


class ForkRequest(BaseModel):
    """Requests a process. Its socket, activity page and stack dump file are attached to the packet, in this order."""

    model_config = ConfigDict(frozen=True)

    number: int
    memory_bytes: int
    """The memory that the process may allocate."""
    readable: list[str]
    """Paths that the process may read, besides those that all hosts may read."""
    writable: list[str]
    """Paths that the process may read and change."""


class ForkSucceeded(BaseModel):
    """The process runs. A descriptor of it (`pidfd_open(2)`) is attached to the packet."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["succeeded"] = "succeeded"
    number: int
    """The number of the request."""
    pid: int


class ForkFailed(BaseModel):
    """The process could not be started."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["failed"] = "failed"
    number: int
    message: str


class ProcessEnded(BaseModel):
    """A process has ended."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["ended"] = "ended"
    pid: int
    status: int
    """The exit status, or the negative number of the signal that killed the process."""


ForkReply = ForkSucceeded | ForkFailed | ProcessEnded
FORK_REPLY: TypeAdapter[ForkReply] = TypeAdapter(ForkReply)
