"""Reads the figures of all gateways of the instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pydantic import BaseModel

from cornserve.app.overview import MissingGateway, ReadGateways
from cornserve.gateway_reader import FindGateways, read_gateways
from cornserve.http_reader import HttpReader, ReadError

RESPONSE_SECONDS: Final = 1.0
"""A gateway that takes longer counts as missing."""

Answer = TypeVar("Answer", bound=BaseModel)


class GatewayPeers:
    """All gateways of the instance, this one included.

    Args:
        find_gateways: finds all gateways. Without it, this gateway is alone.
        token: the token for their figures.
    """

    def __init__(self, find_gateways: FindGateways | None, token: str) -> None:
        self._find_gateways = find_gateways
        self._token = token

    async def read(
        self, path: str, parameters: Mapping[str, str], kind: type[Answer], own: Callable[[], Answer]
    ) -> tuple[list[Answer], ReadGateways]:
        """Returns the answers of the gateways that answer, and the others as missing.

        Args:
            own: returns the answer of this gateway.
        """
        if self._find_gateways is None:
            return [own()], ReadGateways()
        try:
            urls = await self._find_gateways()
        except OSError as error:
            return [own()], ReadGateways(missing=[MissingGateway(gateway="the others", error=str(error))])
        async with HttpReader(RESPONSE_SECONDS, self._token) as reader:
            answers = await read_gateways(reader, urls, path, kind.model_validate_json, parameters)
        found = [answer for answer in answers.values() if not isinstance(answer, ReadError)]
        missing = [
            MissingGateway(gateway=url.removeprefix("http://"), error=str(answer))
            for url, answer in answers.items()
            if isinstance(answer, ReadError)
        ]
        return found, ReadGateways(read=len(found), missing=missing)
