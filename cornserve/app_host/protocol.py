"""The two ends of the connection between an app host and its parent."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.codec import Codec
from cornserve.wire.frame_memory import FrameMemory

_PREAMBLE: Final = b"cornserve.v1.AppHost/1\n"

MAX_REPLY_BYTES: Final = 16 << 20
"""Limit for the size of a reply. A host must neither fill the memory of its parent nor block its event loop."""

PARENT: Final[Codec[pb.HostCommand, pb.HostReply]] = Codec(_PREAMBLE, pb.HostReply, max_received_bytes=MAX_REPLY_BYTES)
HOST: Final[Codec[pb.HostReply, pb.HostCommand]] = Codec(_PREAMBLE, pb.HostCommand, max_sent_bytes=MAX_REPLY_BYTES)

REPLY_MEMORY: Final = FrameMemory(8 * MAX_REPLY_BYTES)
"""Counts the unfinished replies of all hosts of this process, separately from the frames of other connections."""
