"""Connections with clients that read slowly or send large bodies."""

from __future__ import annotations

import asyncio

from cornserve.gateway.http.connection import HttpConnection
from cornserve.gateway.http.server import HttpServer
from cornserve.limits import Limits
from tests.loop_clock import LoopClock
from tests.unit.gateway.raw_http import post
from tests.waiting import until


class StubTransport(asyncio.Transport):
    """A transport whose write buffer has the sizes `unread`, one after the other."""

    def __init__(self, *unread: int) -> None:
        super().__init__()
        self.unread = list(unread)
        self.is_aborted = self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def writelines(self, data: object) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unread.pop(0)

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_slow_reader_is_disconnected_only_after_it_stops_reading(server: HttpServer, clock: LoopClock) -> None:
    limits = Limits()
    connection = HttpConnection(server.config, server.server_state, {}, limits=limits)
    transport = StubTransport(30, 20, 20, 20)
    connection.connection_made(transport)

    connection.pause_writing()

    await clock.advance_until(lambda: transport.is_aborted, step=limits.stall_seconds)
    assert transport.unread == []
    connection.connection_lost(None)


async def test_reading_continues_after_a_large_body_so_that_a_disconnect_is_noticed(
    server: HttpServer,
) -> None:
    await until(lambda: server.started)
    connection = HttpConnection(server.config, server.server_state, {}, limits=Limits())
    transport = StubTransport()
    connection.connection_made(transport)

    connection.data_received(post("/v1/apps/echo/invoke", "Content-Length: 200000") + b"x" * 200_000)

    assert not transport.is_paused
    transport.abort()
    connection.connection_lost(None)
