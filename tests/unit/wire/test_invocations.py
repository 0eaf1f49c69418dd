from __future__ import annotations

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.invocations import MIN_BLOB_BYTES, StartCommand


@pytest.mark.parametrize("sizes", [[0, 1, 127], [MIN_BLOB_BYTES], [3_000_000, 10, MIN_BLOB_BYTES - 1, 200_000]])
def test_inputs_keep_their_order_and_large_blobs_are_not_copied(sizes: list[int]) -> None:
    blobs = [bytes([number]) * size for number, size in enumerate(sizes)]
    command = StartCommand()
    command.message.call = 7
    command.message.start.request = b"{}"
    for number, blob in enumerate(blobs):
        command.add_blob(blob)
        command.add_pending().invocation = number

    inputs = command.encode_inputs()
    parsed = pb.Command.FromString(command.message.SerializeToString() + b"".join(inputs))

    assert (parsed.call, parsed.start.request) == (7, b"{}")
    assert [given.inline for given in parsed.start.inputs][::2] == blobs
    assert [given.pending.invocation for given in parsed.start.inputs][1::2] == list(range(len(blobs)))
    assert [given.HasField("pending") for given in command.inputs] == [False, True] * len(blobs)
    for blob in blobs:
        assert any(part is blob for part in inputs) == (len(blob) >= MIN_BLOB_BYTES)
