from __future__ import annotations

from cornserve.gateway.http.request_size import RequestSize


def test_a_body_does_not_count_as_framing_of_the_next_request_in_the_same_data() -> None:
    size = RequestSize()
    first, second = b"A" * 200_000, b"B" * 1_000

    assert not size.add_received(b"POST / HTTP/1.1\r\n\r\n" + first + b"POST / HTTP/1.1\r\n\r\n" + second)
    size.begin_body()
    size.add_content(len(first))
    size.begin_head()
    size.begin_body()
    size.add_content(len(second))

    assert not size.is_framing_too_long
