"""Resolves host names."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from cornserve.daemon_thread import run_in_daemon_thread

LookUp = Callable[..., list[Any]]
"""Has the signature of `socket.getaddrinfo`."""


class HostResolver(AbstractResolver):
    """Resolves each name in a separate thread, because a name server may take arbitrarily long to respond."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await run_in_daemon_thread(
                self._look_up, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
            )
        except UnicodeError as error:  # a label of the name is too long
            raise OSError(str(error)) from error
        return [
            ResolveResult(hostname=host, host=address[0], port=address[1], family=family, proto=protocol, flags=0)
            for family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        pass
