"""What a connection does when its client reads slowly, or sends much."""

from __future__ import annotations

import asyncio

from cornserve.gateway.http.connection import HttpConnection
from cornserve.gateway.http.server import HttpServer
from cornserve.limits import Limits
from tests.unit.gateway.raw_http import post
from tests.waiting import until


class Wire(asyncio.Transport):
    """To a client; `unread` has what it has left to read whenever that is looked at."""

    def __init__(self, *unread: int) -> None:
        super().__init__()
        self.unread = list(unread)
        self.is_aborted = self.is_paused = False

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def writelines(self, data: object) -> None:
        pass

    def close(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread.pop(0)

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_client_that_reads_slowly_is_not_cut_off_before_it_reads_nothing(server: HttpServer) -> None:
    connection = HttpConnection(server.config, server.server_state, {}, limits=Limits(stall_seconds=1))
    wire = Wire(30, 20, 20, 20)
    connection.connection_made(wire)

    connection.pause_writing()

    await until(lambda: wire.is_aborted)
    assert wire.unread == []
    connection.connection_lost(None)


async def test_a_body_that_arrives_at_once_does_not_keep_the_gateway_from_seeing_that_the_client_leaves(
    server: HttpServer,
) -> None:
    await until(lambda: server.started)
    connection = HttpConnection(server.config, server.server_state, {}, limits=Limits())
    wire = Wire()
    connection.connection_made(wire)

    connection.data_received(post("/v1/apps/echo/invoke", "Content-Length: 200000") + b"x" * 200_000)

    assert not wire.is_paused
    connection.connection_lost(None)
