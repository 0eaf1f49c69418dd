"""Writes of one turn of the event loop leave together."""

from __future__ import annotations

import socket
import struct
import sys

import httpx2 as httpx
import pytest

from tests.unit.gateway.raw_http import Raw, raw

DATA_SEGMENTS_IN = 152
"""Where Linux's `struct tcp_info` has the number of segments with data that came."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts segments for us")
async def test_an_answers_head_and_body_are_one_segment(gateway: httpx.AsyncClient) -> None:
    async with raw(gateway) as connection:
        for count in (1, 2):
            await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await connection.answer()).body == b"ok"

            assert _segments_in(connection) == count


def _segments_in(connection: Raw) -> int:
    info = connection.writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("I", info, DATA_SEGMENTS_IN)[0])
