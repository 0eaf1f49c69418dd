"""The two ends of the connection between an app host and its parent."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.connection import Codec

_PREAMBLE: Final = b"cornserve.v1.AppHost/1\n"

PARENT: Final[Codec[pb.HostCommand, pb.HostReply]] = Codec(_PREAMBLE, pb.HostReply)
HOST: Final[Codec[pb.HostReply, pb.HostCommand]] = Codec(_PREAMBLE, pb.HostCommand)
