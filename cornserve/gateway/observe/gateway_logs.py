"""Reads the lines that the code of an app has written in all gateways of the instance."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic import TypeAdapter

from cornserve.app.app_logs import APP_LOGS_PATH
from cornserve.app.record import ReplicaLog
from cornserve.control.adaptation.arrival_reader import FindGateways
from cornserve.gateway.observe.app_logs import AppLogLines
from cornserve.http_reader import HttpReader, ReadError

RESPONSE_SECONDS: Final = 2.0
"""A gateway that takes longer counts as unreachable."""

_LINES: TypeAdapter[list[str]] = TypeAdapter(list[str])


class GatewayLogs:
    """Keeps the lines of this gateway, and reads those of all gateways.

    Args:
        find_gateways: finds all gateways, this one included. Without it, this gateway is alone.
        token: the token for their lines.
    """

    def __init__(self, find_gateways: FindGateways | None = None, token: str = "") -> None:
        self.own = AppLogLines()
        self._find_gateways = find_gateways
        self._token = token

    async def last(self, app: str, count: int) -> list[ReplicaLog]:
        """Returns the last lines of each gateway that has lines, or cannot be read."""
        if self._find_gateways is None:
            logs = [ReplicaLog(id="gateway", lines=self.own.last(app, count))]
        else:
            try:
                logs = await self._read_all(sorted(await self._find_gateways()), app, count)
            except OSError as error:
                message = f"cannot find the other gateways: {error}"
                logs = [ReplicaLog(id="gateway", lines=self.own.last(app, count), error=message)]
        return [log for log in logs if log.lines or log.error]

    async def _read_all(self, urls: list[str], app: str, count: int) -> list[ReplicaLog]:
        async with HttpReader(RESPONSE_SECONDS, self._token) as reader:
            return await asyncio.gather(*(_read(reader, url, app, count) for url in urls))


async def _read(reader: HttpReader, url: str, app: str, count: int) -> ReplicaLog:
    name = f"gateway {url.removeprefix('http://')}"
    try:
        lines = await reader.read(f"{url}{APP_LOGS_PATH}/{app}", _LINES.validate_json, {"lines": str(count)})
    except ReadError as error:
        return ReplicaLog(id=name, lines=[], error=str(error))
    return ReplicaLog(id=name, lines=lines)
