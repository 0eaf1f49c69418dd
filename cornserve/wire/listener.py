"""Where a process takes lines: who connects says in its greeting what it wants, and gets whoever answers that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from cornserve.wire.connection import MessageConnection, address_of

GREETING_SECONDS = 10.0
"""How long who connects may take to say what it wants."""

Answers = Mapping[bytes, Callable[[], MessageConnection[Any, Any]]]
"""By greeting: makes our end of a line that somebody opens."""


class MessageListener:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._visitors: set[_Visitor] = set()

    async def open(self, endpoint: str) -> str:
        """Listens where whoever knows the endpoint looks for it (`line.address_of`).

        Args:
            endpoint: `HOST:PORT`; port 0 is any free one.

        Returns:
            the endpoint, which nobody need listen at.

        Raises:
            OSError: the port is taken.
        """
        address, wanted = endpoint.rsplit(":", 1)
        host, port = address_of(endpoint)
        create_server = asyncio.get_running_loop().create_server
        self._server = await create_server(self._welcome, host, port if int(wanted) else 0)
        return f"{address}:{self._server.sockets[0].getsockname()[1] - 1}"

    def close(self) -> None:
        """Takes no more lines. Those that have been passed on are not touched."""
        if self._server is not None:
            self._server.close()
        for visitor in list(self._visitors):
            visitor.send_away()

    def _welcome(self) -> asyncio.Protocol:
        visitor = _Visitor(self._answers, self._visitors.discard)
        self._visitors.add(visitor)
        return visitor


class _Visitor(asyncio.Protocol):
    """Who has connected, and has not said what it wants."""

    def __init__(self, answers: Answers, on_gone: Callable[[_Visitor], None]) -> None:
        self._answers = answers
        self._on_gone = on_gone
        self._said = b""
        self._transport: asyncio.Transport | None = None
        self._patience = asyncio.get_running_loop().call_later(GREETING_SECONDS, self.send_away)

    def send_away(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, which does not derive from it

    def data_received(self, data: bytes) -> None:
        self._said += data
        for greeting, answer in self._answers.items():
            if self._said.startswith(greeting):
                self._pass_on(answer())
                return
        if not any(greeting.startswith(self._said) for greeting in self._answers):
            self.send_away()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def _pass_on(self, line: MessageConnection[Any, Any]) -> None:
        assert self._transport is not None
        self._leave()
        self._transport.set_protocol(line)
        line.connection_made(self._transport)
        line.data_received(self._said)

    def _leave(self) -> None:
        self._patience.cancel()
        self._on_gone(self)
