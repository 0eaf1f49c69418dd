"""Frames are what protobuf itself would have written."""

from __future__ import annotations

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.frame import packed


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152, 3_000_000])
def test_a_frame_has_its_messages_however_long_they_are(size: int) -> None:
    events = [pb.Event(), pb.Event(call=1, end=pb.End(values=bytes(size))), pb.Event(call=300)]

    assert packed(events) == pb.InvokeResponse(events=events).SerializeToString()


def test_a_frame_may_be_empty() -> None:
    assert packed([]) == pb.InvokeResponse().SerializeToString()
