"""Reads documents of other processes by HTTP, with limits for the time and the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from cornserve.exception_text import exception_text

if TYPE_CHECKING:  # It takes long to import, and many processes never read documents.
    from aiohttp import ClientResponse, ClientSession

Document = TypeVar("Document")

MAX_BYTES: Final = 32 << 20
"""The size of a document, by default."""


class ReadError(Exception):
    """A document cannot be read. The message is the reason."""


class HttpReader:
    """Reads documents, on kept connections.

    Args:
        seconds: the time after which a server does not answer.
        token: the token for the documents.
        max_bytes: the size of a document.
    """

    def __init__(self, seconds: float, token: str = "", max_bytes: int = MAX_BYTES) -> None:
        self._seconds = seconds
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._max_bytes = max_bytes
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def read(
        self, url: str, parse: Callable[[bytes], Document], parameters: Mapping[str, str] | None = None
    ) -> Document:
        """Returns a parsed document. A redirect is an error.

        Args:
            parse: raises `ValueError` for another document.
        Raises:
            ReadError: the server does not answer, or with another status than 200 or another document.
        """
        from aiohttp import ClientError, ClientSession, ClientTimeout

        if self._session is None:
            self._session = ClientSession(headers=self._headers, timeout=ClientTimeout(total=self._seconds))
        try:
            async with self._session.get(url, params=parameters, allow_redirects=False) as response:
                if response.status != 200:
                    raise ReadError(f"status {response.status}")
                return parse(await read_body(response, self._max_bytes))
        except (ClientError, OSError, ValueError) as error:  # A timeout is an OSError.
            raise ReadError(exception_text(error)) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def read_body(response: ClientResponse, max_bytes: int) -> bytes:
    """Raises `ValueError` for a body of more than `max_bytes`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise ValueError(f"the response has more than {max_bytes} bytes")
    return bytes(body)
