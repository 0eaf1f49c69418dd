"""Server-sent events, as they arrive."""

from __future__ import annotations

import pytest

from cornserve.client.events import Event, EventParser

STREAM = 'data: {"a":\ndata: 1}\r\n\r\n: \n\nevent: error\ndata: Grüße\n\ndata: begun'.encode()
EVENTS = [Event("message", '{"a":\n1}'), Event("comment"), Event("error", "Grüße")]


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM)])
def test_events_are_read_in_whatever_pieces_they_come(size: int) -> None:
    parser = EventParser()
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]

    assert [event for piece in pieces for event in parser.take(piece)] == EVENTS
