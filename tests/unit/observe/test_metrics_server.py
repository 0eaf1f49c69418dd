"""The server of metrics, which any client can reach."""

from __future__ import annotations

import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry, Counter

from cornserve.observe.metrics_server import CONNECTION_INTERVAL_SECONDS, MAX_CONNECTIONS, start_metrics_server
from tests.fake_time import FakeTime


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """Lets the pauses of the server end at once."""
    time = FakeTime()
    monkeypatch.setattr("cornserve.observe.metrics_server.time", time)
    return time


@pytest.fixture
def port(time: FakeTime) -> int:
    registry = CollectorRegistry()
    Counter("requests", "Requests.", registry=registry).inc(7)
    return start_metrics_server("127.0.0.1", 0, registry)


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text: bytes = response.read()
        return text.decode()


def test_metrics_are_served(port: int) -> None:
    assert "requests_total 7.0" in metrics(port)


def test_clients_that_send_nothing_do_not_delay_others(port: int) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MAX_CONNECTIONS)]

        assert "requests_total 7.0" in metrics(port)
        silent[0].settimeout(60)
        assert silent[0].recv(1) == b""


def test_the_rate_of_requests_is_limited(port: int, time: FakeTime) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: metrics(port), range(8)))) == 8

    assert time.now == pytest.approx(7 * CONNECTION_INTERVAL_SECONDS)


def test_a_port_in_use_is_reported(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        start_metrics_server("127.0.0.1", port, CollectorRegistry())
