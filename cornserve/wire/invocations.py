"""The connections at which an executor is called and observed, and the encoding of commands with large inputs."""

from __future__ import annotations

from typing import Final

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.bytes_fields import encode_bytes_field, field_path
from cornserve.wire.codec import Codec

_PREAMBLE = b"cornserve.v1.Executor/3\n"
_STATE_PREAMBLE = b"cornserve.v1.ExecutorState/1\n"

MAX_UNSENT_EVENTS: Final = 8192
"""An executor reads no further commands while this many of its events are unsent."""

CALLER: Final[Codec[pb.Command, pb.Event]] = Codec(_PREAMBLE, pb.Event)
EXECUTOR: Final[Codec[pb.Event, pb.Command]] = Codec(_PREAMBLE, pb.Command, max_unsent=MAX_UNSENT_EVENTS)

OBSERVER: Final[Codec[pb.ObserveRequest, pb.Observation]] = Codec(_STATE_PREAMBLE, pb.Observation)
OBSERVED: Final[Codec[pb.Observation, pb.ObserveRequest]] = Codec(
    _STATE_PREAMBLE, pb.ObserveRequest, max_received_bytes=0
)
"""An observer sends no messages."""

HEARTBEAT_SECONDS: Final = 2.5
"""Observers receive an observation at least this often. It shows that the executor's event loop runs."""

STATE: Final = "hand-over"
"""The output of an invocation that a replica hands over: a tensor with which another one continues sooner. No field of
an output has this name."""

MIN_BLOB_BYTES = 64 * 1024
"""Smaller blobs are a part of the command. Copying them takes less time than sending them separately."""

_INLINE: Final = field_path(pb.Command, "start", "inputs", "inline")


class StartCommand:
    """A start command and its inputs, which are encoded without copying large blobs, such as images."""

    __slots__ = ("_blobs", "inputs", "message")

    def __init__(self) -> None:
        self.message = pb.Command()
        """The command without its inputs."""
        self.inputs: list[pb.Input] = []
        """All inputs in order. Those that are large blobs are empty."""
        self._blobs: dict[int, bytes] = {}

    def add_blob(self, data: bytes) -> None:
        if len(data) < MIN_BLOB_BYTES:
            self.inputs.append(pb.Input(inline=data))
        else:
            self._blobs[len(self.inputs)] = data
            self.inputs.append(pb.Input())

    def add_pending(self) -> pb.Pending:
        """Returns the tensor to fill in."""
        self.inputs.append(pb.Input())
        return self.inputs[-1].pending

    def encode_inputs(self) -> list[bytes]:
        """Returns the inputs as the encoding of a command, in parts, to follow the encoding of `message`."""
        parts: list[bytes] = []
        for index, given in enumerate(self.inputs):
            blob = self._blobs.get(index)
            if blob is None:
                parts.append(pb.Command(start=pb.Start(inputs=[given])).SerializeToString())
            else:
                parts += encode_bytes_field(_INLINE, blob)
        return parts
