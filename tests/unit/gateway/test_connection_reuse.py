"""Connections that are reused, idle, half-closed, pipelined or rejected: every request that is read is answered."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import cast

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import Store
from cornserve.gateway.http.connection import HttpConnection
from cornserve.gateway.http.server import HttpServer
from cornserve.limits import MIB, Limits
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import RawConnection, get, post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions, client_of, running_gateway, with_gateway_options
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

INVOKE = "/v1/apps/echo/invoke"


def invocation(body: bytes, *headers: str) -> bytes:
    return post(INVOKE, f"Content-Length: {len(body)}", *headers) + body


async def get_health(connection: RawConnection) -> int:
    await connection.send(get("/healthz"))
    return (await connection.read_response()).status


def connections(server: HttpServer) -> list[HttpConnection]:
    return [cast(HttpConnection, connection) for connection in server.server_state.connections]


@with_gateway_options(GatewayOptions(Limits(idle_seconds=1, receive_seconds=1)))
class TestIdle:
    async def test_an_idle_connection_is_ended_and_not_reset(
        self, gateway: httpx.AsyncClient, clock: LoopClock
    ) -> None:
        async with raw_connection(gateway) as unused, raw_connection(gateway) as used:
            assert await get_health(used) == 200

            assert await clock.advance_during(used.ends(), step=0.1)
            assert await clock.advance_during(unused.ends(), step=0.1)

    async def test_responses_announce_the_end_of_an_idle_connection(self, gateway: httpx.AsyncClient) -> None:
        async with raw_connection(gateway) as connection:
            await connection.send(get("/healthz"))
            kept = await connection.read_response()
            await connection.send(get("/healthz", "Connection: close"))
            last = await connection.read_response()

        assert kept.headers["keep-alive"] == "timeout=1"
        assert "keep-alive" not in last.headers
        assert last.headers["connection"] == "close"

    async def test_a_request_that_arrives_before_the_idle_timeout_is_answered(
        self, gateway: httpx.AsyncClient, server: HttpServer
    ) -> None:
        """The timeout expires when the event loop has not read the request yet."""
        async with raw_connection(gateway) as connection:
            assert await get_health(connection) == 200
            os.write(connection.writer.get_extra_info("socket").fileno(), get("/healthz"))
            for served in connections(server):
                served.timeout_keep_alive_handler()

            assert (await connection.read_response()).status == 200

    async def test_a_request_after_the_end_of_the_connection_does_not_cause_a_reset(
        self, gateway: httpx.AsyncClient, clock: LoopClock
    ) -> None:
        async with raw_connection(gateway) as connection:
            assert await clock.advance_during(connection.ends(), step=0.1)
            for _ in range(3):
                await connection.send(get("/healthz"))

            assert await connection.ends()


async def test_a_client_that_ends_its_side_gets_its_responses(gateway: httpx.AsyncClient) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(get("/healthz") * 3)
        connection.writer.write_eof()

        assert [(await connection.read_response()).status for _ in range(3)] == [200, 200, 200]
        assert await connection.ends()


@pytest.mark.parametrize(
    "request_line", ["GET /healthz", "HEAD /readyz", "GET /v1/models", "GET /metrics", "GET /none"]
)
@pytest.mark.parametrize("partial", [b"", b"GET /he"])
async def test_a_complete_request_is_answered_after_the_client_ended_its_side(
    gateway: httpx.AsyncClient, request_line: str, partial: bytes
) -> None:
    async with raw_connection(gateway) as connection:
        sent = f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() + partial
        os.write(connection.writer.get_extra_info("socket").fileno(), sent)
        connection.writer.write_eof()

        async with asyncio.timeout(60):
            assert (await connection.reader.read()).startswith(b"HTTP/1.1 ")


async def test_the_end_of_a_client_within_a_body_is_an_error_after_earlier_responses(
    gateway: httpx.AsyncClient,
) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(get("/healthz") + post(INVOKE, "Content-Length: 9") + b"{")
        connection.writer.write_eof()

        assert [(await connection.read_response()).status for _ in range(2)] == [200, 400]
        assert await connection.ends()


async def test_the_end_of_a_client_cancels_its_request(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(ECHO)
    async with raw_connection(gateway) as connection:
        await connection.send(invocation(b'{"text": "a b", "seconds": 1000}'))
        await until(lambda: executors.running() == 1)
        connection.writer.write_eof()

        assert (await connection.read_response()).status == 499
        assert await connection.ends()
        await until(lambda: executors.running() == 0)


async def test_pipelined_requests_before_a_malformed_one_are_answered(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)
    async with raw_connection(gateway) as connection:
        await connection.send(invocation(b'{"text": "a b", "seconds": 0.2}') + get("/healthz") + b"?\r\n\r\n")

        statuses = [(await connection.read_response()).status for _ in range(3)]

        assert statuses == [200, 200, 400]
        assert await connection.ends()


async def test_pipelined_requests_before_a_too_large_one_are_answered(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)
    async with raw_connection(gateway) as connection:
        await connection.send(invocation(b'{"text": "a b", "seconds": 0.2}'))
        chunked = post(INVOKE, "Transfer-Encoding: chunked") + b"1;" + b"x" * 600_000  # several reads
        await connection.send(chunked)

        assert (await connection.read_response()).status == 200
        assert (await connection.read_response()).status == 431
        assert await connection.ends()


@pytest.mark.parametrize("header", ["Connection: close", "Content-Length: 100000000"])
async def test_a_client_that_continues_to_send_receives_the_last_response(
    gateway: httpx.AsyncClient, header: str
) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(post("/v1/none", header) + b"x" * 4 * MIB)

        assert (await connection.read_response()).status in (404, 413)
        assert await connection.ends()


async def test_a_slow_client_receives_a_large_response_before_its_connection_is_closed(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(ECHO)
    text = b"x" * 6 * MIB
    async with raw_connection(gateway) as connection:
        await connection.send(invocation(b'{"text": "%s"}' % text, "Connection: close"))

        assert text in (await connection.read_response()).body
        assert await connection.ends()


class TestShutdown:
    @pytest_asyncio.fixture(loop_scope="module")
    async def server(self, store: Store, fork_server: ForkServer) -> AsyncIterator[HttpServer]:
        async with running_gateway(store, GatewayOptions(), fork_server) as server:
            yield server

    @pytest_asyncio.fixture(loop_scope="module")
    async def gateway(self, server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
        async with client_of(server) as client:
            yield client

    async def test_accepted_requests_finish_and_the_gateway_is_not_ready(
        self,
        gateway: httpx.AsyncClient,
        deploy: Deploy,
        executors: EchoExecutors,
        server: HttpServer,
        clock: LoopClock,
    ) -> None:
        await deploy(ECHO)
        async with (
            raw_connection(gateway) as running,
            raw_connection(gateway) as partial,
            raw_connection(gateway) as probe,
            raw_connection(gateway) as idle,
        ):
            await running.send(invocation(b'{"text": "a b", "seconds": 1}'))
            await until(lambda: executors.running() == 1)
            await partial.send(get("/healthz")[:20])
            assert await get_health(probe) == 200
            assert await get_health(idle) == 200

            server.begin_shutdown()
            await probe.send(get("/readyz"))
            not_ready = await probe.read_response()
            await until(lambda: not server.servers[0].is_serving())
            await partial.send(get("/healthz")[20:])
            await clock.advance_until(lambda: executors.running() == 0, step=0.5, at_most=1)
            finished = [await running.read_response(), await partial.read_response()]

            assert (not_ready.status, not_ready.body) == (503, b"the gateway is stopping")
            assert [response.status for response in finished] == [200, 200]
            assert {response.headers["connection"] for response in (not_ready, *finished)} == {"close"}
            for connection in (running, partial, probe, idle):
                assert await connection.ends()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", gateway.base_url.port or 0))

    async def test_the_timer_of_a_connection_that_has_ended_does_nothing(
        self, gateway: httpx.AsyncClient, server: HttpServer
    ) -> None:
        others = connections(server)
        async with raw_connection(gateway) as client:
            assert await get_health(client) == 200
            [served] = [connection for connection in connections(server) if connection not in others]

        await until(lambda: served not in connections(server))

        served.timeout_keep_alive_handler()

    async def test_clients_that_were_not_accepted_yet_are_answered(self, server: HttpServer) -> None:
        await until(lambda: server.started)
        [listener] = [found for listening in server.servers for found in listening.sockets]
        clients = [socket.create_connection(listener.getsockname()) for _ in range(20)]
        for client in clients:
            client.sendall(get("/healthz"))

        server.begin_shutdown()

        for client in clients:
            reader, writer = await asyncio.open_connection(sock=client)
            connection = RawConnection(reader, writer)
            response = await connection.read_response()
            assert (response.status, response.headers["connection"]) == (200, "close")
            assert await connection.ends()
            writer.close()
