"""Reads the lines that the code of an app has written in all gateways of the instance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter, ValidationError

from cornserve.app.record import ReplicaLog
from cornserve.gateway.observe.app_logs import AppLogLines

if TYPE_CHECKING:  # It takes long to import, and most instances have one gateway.
    from aiohttp import ClientSession

APP_LOGS_PATH: Final = "/internal/v1/app-logs"
"""The path of the lines of one gateway, which is followed by the name of the app."""

APP_LOGS_TOKEN: Final = "app-logs"
"""The purpose of the token that the path requires: see `InstanceSecret.token`."""

RESPONSE_SECONDS: Final = 2.0
"""The time after which a gateway does not answer."""

FindGateways = Callable[[], Awaitable[Sequence[str]]]
"""Returns the URLs of all gateways if there are several. Raises OSError if they cannot be found."""

_LINES: TypeAdapter[list[str]] = TypeAdapter(list[str])


class GatewayLogs:
    """Keeps the lines of this gateway, and reads those of all others.

    Args:
        find_gateways: finds this gateway and the others. Without it, this gateway is alone.
        token: the token for the lines of the others.
    """

    def __init__(self, find_gateways: FindGateways | None = None, token: str = "") -> None:
        self.own = AppLogLines()
        self._find_gateways = find_gateways
        self._headers = {"authorization": f"Bearer {token}"}

    async def last(self, app: str, count: int) -> list[ReplicaLog]:
        """Returns the last lines in each gateway. A gateway that cannot be read has a line with the reason."""
        try:
            urls = [] if self._find_gateways is None else await self._find_gateways()
        except OSError as error:
            return [*self._own_log(app, count), _unreadable("gateway", f"the other gateways: {error}")]
        if len(urls) < 2:
            return self._own_log(app, count)
        from aiohttp import ClientSession, ClientTimeout

        timeout = ClientTimeout(total=RESPONSE_SECONDS)
        async with ClientSession(headers=self._headers, timeout=timeout, raise_for_status=True) as session:
            logs = await asyncio.gather(*(_read(session, url, app, count) for url in sorted(urls)))
        return [log for log in logs if log.lines]

    def _own_log(self, app: str, count: int) -> list[ReplicaLog]:
        lines = self.own.last(app, count)
        return [ReplicaLog(id="gateway", lines=lines)] if lines else []


async def _read(session: ClientSession, url: str, app: str, count: int) -> ReplicaLog:
    from aiohttp import ClientError

    name = f"gateway {url.removeprefix('http://')}"
    try:
        async with session.get(f"{url}{APP_LOGS_PATH}/{app}", params={"lines": count}) as response:
            return ReplicaLog(id=name, lines=_LINES.validate_json(await response.read()))
    except (ClientError, OSError, ValidationError) as error:  # A timeout is an OSError.
        return _unreadable(name, f"this gateway: {type(error).__name__}: {error}".removesuffix(": "))


def _unreadable(name: str, reason: str) -> ReplicaLog:
    return ReplicaLog(id=name, lines=[f"cannot read the lines of {reason}"])
