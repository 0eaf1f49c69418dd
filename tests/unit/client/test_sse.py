"""Server-sent events are parsed from any chunks of bytes."""

from __future__ import annotations

import pytest

from cornserve.client.sse import ServerSentEvent, SseParser

STREAM = 'event: ping\n\ndata: {"a":\ndata: 1}\r\n\r\n: \n\nevent: error\ndata: Grüße\n\ndata: begun'.encode()
EVENTS = [ServerSentEvent("message", '{"a":\n1}'), ServerSentEvent("comment"), ServerSentEvent("error", "Grüße")]


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM)])
def test_events_are_parsed_from_chunks_of_any_size(size: int) -> None:
    parser = SseParser()
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]

    assert [event for chunk in chunks for event in parser.feed(chunk)] == EVENTS
