"""The gateway's memory for clients that do not read their responses."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from pydantic_core import to_json

from benchmarks.harness.instance import BenchmarkInstance, running_instance
from benchmarks.harness.processes import CoreAssignment, resident_mib
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

CLIENTS = 20
RESPONSE_MIB = 4


@pytest.mark.slow
def test_a_response_that_is_not_read_is_held_once_until_its_client_disconnects() -> None:
    with running_instance({"echo": ECHO}, CoreAssignment(), ("-m", "cornserve.gateway")) as instance:
        before = resident_mib(instance.gateway)
        with ExitStack() as clients:
            with ThreadPoolExecutor(CLIENTS) as threads:
                connections = list(threads.map(_send_request, [instance] * CLIENTS))
            for connection in connections:
                clients.enter_context(connection)
                assert connection.recv(100).startswith(b"HTTP/1.1 200")

            assert resident_mib(instance.gateway) - before < CLIENTS * RESPONSE_MIB * 1.5

        asyncio.run(until(lambda: resident_mib(instance.gateway) - before < CLIENTS * RESPONSE_MIB / 2))


def _send_request(instance: BenchmarkInstance) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", instance.port))
    body = to_json({"text": "a" * (RESPONSE_MIB << 20)})
    head = f"POST /v1/apps/echo/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client
