"""The two sides of a line over which invocations travel."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.line import Side

_GREETING = b"cornserve.v1.Executor\n"

CALLER: Final[Side[pb.Command, pb.InvokeResponse]] = Side(_GREETING, pb.InvokeResponse)
EXECUTOR: Final[Side[pb.Event, pb.InvokeRequest]] = Side(_GREETING, pb.InvokeRequest)
