"""Hosts' names become addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from cornserve.app.threads import run_in_daemon_thread

LookUp = Callable[..., list[Any]]
"""As `socket.getaddrinfo`."""


class Names(AbstractResolver):
    """Asks the system in threads that wait for nobody else: a name may take as long as its owner likes."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await run_in_daemon_thread(
                self._look_up, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
            )
        except UnicodeError as error:  # a part of the name is too long for any
            raise OSError(str(error)) from error
        return [
            ResolveResult(hostname=host, host=to[0], port=to[1], family=family, proto=protocol, flags=0)
            for family, _, protocol, _, to in found
        ]

    async def close(self) -> None:
        pass
