"""The two sides of a line over which invocations travel."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import Codec

_GREETING = b"cornserve.v1.Executor\n"

CALLER: Final[Codec[pb.Command, pb.InvokeResponse]] = Codec(_GREETING, pb.InvokeResponse)
EXECUTOR: Final[Codec[pb.Event, pb.InvokeRequest]] = Codec(_GREETING, pb.InvokeRequest)
