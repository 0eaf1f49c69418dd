"""Reads the figures of all gateways of the instance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel

from cornserve.app.overview import MissingGateway, ReadGateways
from cornserve.control.adaptation.arrival_reader import FindGateways
from cornserve.http_reader import HttpReader, ReadError

RESPONSE_SECONDS: Final = 1.0
"""A gateway that takes longer counts as missing."""

ADDRESS_SECONDS: Final = 5.0
"""The time for which the addresses of gateways are used: on Kubernetes, its API server finds them."""

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
        self._addresses: Sequence[str] = ()
        self._found_at = -ADDRESS_SECONDS

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
            if time.monotonic() - self._found_at >= ADDRESS_SECONDS:
                self._addresses = sorted(await self._find_gateways())
                self._found_at = time.monotonic()
        except OSError as error:
            return [own()], ReadGateways(missing=[MissingGateway(gateway="the others", error=str(error))])
        async with HttpReader(RESPONSE_SECONDS, self._token) as reader:
            read = (_read(reader, address, path, parameters, kind) for address in self._addresses)
            answers = await asyncio.gather(*read)
        missing = [answer for answer in answers if isinstance(answer, MissingGateway)]
        found = [answer for answer in answers if not isinstance(answer, MissingGateway)]
        return found, ReadGateways(read=len(found), missing=missing)


async def _read(
    reader: HttpReader, address: str, path: str, parameters: Mapping[str, str], kind: type[Answer]
) -> Answer | MissingGateway:
    try:
        return await reader.read(address + path, kind.model_validate_json, parameters)
    except ReadError as error:
        return MissingGateway(gateway=address.removeprefix("http://"), error=str(error))
