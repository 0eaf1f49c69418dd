"""The two ends of a connection that carries invocations."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import Codec

_PREAMBLE = b"cornserve.v1.Executor/2\n"

CALLER: Final[Codec[pb.Command, pb.Event]] = Codec(_PREAMBLE, pb.Event)
EXECUTOR: Final[Codec[pb.Event, pb.Command]] = Codec(_PREAMBLE, pb.Command)
