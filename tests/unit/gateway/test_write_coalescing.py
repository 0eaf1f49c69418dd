"""Writes of one event-loop iteration are sent together."""

from __future__ import annotations

import socket
import struct
import sys

import httpx2 as httpx
import pytest

from tests.unit.gateway.raw_http import RawConnection, raw_connection

DATA_SEGMENTS_IN = 152
"""The offset of `tcpi_data_segs_in` in Linux's `struct tcp_info`."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts segments")
async def test_the_head_and_the_body_of_a_response_are_one_segment(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        for count in (1, 2):
            await connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await connection.read_response()).body == b"ok"

            assert _segments_in(connection) == count


def _segments_in(connection: RawConnection) -> int:
    info = connection.writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return int(struct.unpack_from("I", info, DATA_SEGMENTS_IN)[0])
