"""Random bytes over connections for pulls by TCP. They affect their own connection only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from cornserve.transport import LostError
from cornserve.transport.pull.tcp import PREAMBLE
from cornserve.wire import handshake, sockets
from cornserve.wire.listener import ConnectionListener
from tests.chaos import form
from tests.credentials import CREDENTIALS
from tests.pull_sources import pull_source, pull_target
from tests.unit.transport.test_fuzzing import FUZZED, SEQUENCES
from tests.unit.transport.test_pull import CAPABILITY, PullPair
from tests.unit.transport.test_transport import DATA


@pytest.mark.chaos(fault="sequences of random bytes to the sender of tensors over TCP", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(st.lists(st.one_of(st.just(CAPABILITY), st.binary(max_size=40)), min_size=1, max_size=6))
def test_any_requests_of_a_consumer_affect_no_other(requests: Sequence[bytes]) -> None:
    async def check(pair: PullPair) -> None:
        endpoint = await pair.listen(pull_source(DATA))
        with await sockets.connect(endpoint) as hostile:
            await handshake.connect(hostile, PREAMBLE, CREDENTIALS)
            for request in requests:
                with suppress(ConnectionError):  # The sender has closed the connection.
                    await asyncio.get_running_loop().sock_sendall(hostile, request)
            assert await _pull(pair, endpoint) == DATA

    asyncio.run(_run(check))


@pytest.mark.chaos(fault="sequences of random bytes to the receiver of tensors over TCP", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(st.lists(st.sampled_from([b"\0", b"\1", DATA, DATA[:-1], DATA + b"\0", DATA + b"\1"]), max_size=4))
def test_any_response_of_a_producer_ends_the_pull(parts: Sequence[bytes]) -> None:
    response = b"".join(parts)

    async def check(pair: PullPair) -> None:
        listener = ConnectionListener({PREAMBLE: lambda: _Producer(parts)}, CREDENTIALS)
        endpoint = await listener.listen("127.0.0.1:0")
        try:
            received = await _pull(pair, endpoint)
        except LostError:
            assert response[len(DATA) : len(DATA) + 1] != b"\1"
        else:
            assert received + b"\1" == response[: len(DATA) + 1]
        await listener.close()
        assert await _pull(pair, await pair.listen(pull_source(DATA))) == DATA

    asyncio.run(_run(check))


class _Producer(asyncio.Protocol):
    """Sends the same to any consumer, and closes the connection."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for part in self._parts:
            self._transport.write(part)
        self._transport.close()


async def _pull(pair: PullPair, endpoint: str) -> bytes:
    into = bytearray(len(DATA))
    await pair.puller.pull(endpoint, CAPABILITY, pull_target(into))
    return bytes(into)


async def _run(check: Callable[[PullPair], Awaitable[None]]) -> None:
    """Asserts that no task fails."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    pair = PullPair()
    try:
        await check(pair)
    finally:
        await pair.close()
    assert errors == []
