"""Reads the lines that the code of an app has written in all gateways of the instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from cornserve.app.app_logs import APP_LOGS_PATH
from cornserve.app.record import ReplicaLog
from cornserve.gateway.observe.app_logs import AppLogLines
from cornserve.gateway_reader import FindGateways, read_gateways
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

    async def last(self, app: str, count: int, only: str | None = None) -> list[ReplicaLog]:
        """Returns the last lines of each gateway that has lines, or cannot be read.

        Args:
            only: the id of the only log to read.
        """
        if self._find_gateways is None:
            logs = [ReplicaLog(id="gateway", lines=self.own.last(app, count))]
        else:
            try:
                urls = [url for url in await self._find_gateways() if only in (None, _id(url))]
                logs = await self._read_all(urls, app, count)
            except OSError as error:
                message = f"cannot find the other gateways: {error}"
                logs = [ReplicaLog(id="gateway", lines=self.own.last(app, count), error=message)]
        return [log for log in logs if (log.lines or log.error) and only in (None, log.id)]

    async def _read_all(self, urls: Sequence[str], app: str, count: int) -> list[ReplicaLog]:
        path = f"{APP_LOGS_PATH}/{app}"
        async with HttpReader(RESPONSE_SECONDS, self._token) as reader:
            answers = await read_gateways(reader, urls, path, _LINES.validate_json, {"lines": str(count)})
        return [_log(_id(url), answer) for url, answer in answers.items()]


def _id(url: str) -> str:
    return f"gateway {url.removeprefix('http://')}"


def _log(id: str, answer: list[str] | ReadError) -> ReplicaLog:
    if isinstance(answer, ReadError):
        return ReplicaLog(id=id, lines=[], error=str(answer))
    return ReplicaLog(id=id, lines=answer)
