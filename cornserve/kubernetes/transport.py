"""HTTP requests to the API server, with credentials, timeouts and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cornserve.kubernetes.configuration import ClusterAccess
from cornserve.kubernetes.errors import KubeConfigError, KubeUnauthorizedError, response_error, unreachable_error

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientTimeout, ClientWebSocketResponse

    from cornserve.kubernetes.connections import ApiServerClient

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
"""Timeout of a connection, with its TLS handshake."""

READ_SECONDS = 10.0
"""Maximum time between two parts of a response."""

REQUEST_SECONDS = 30.0
"""Maximum time of a complete request, except watches."""

MAX_RETRIES = 3
"""Number of times that a request is repeated when the API server asks for it with `Retry-After`."""

MAX_RETRY_AFTER_SECONDS = 5.0
"""A request that the API server wants to see later than this fails."""

UNSTARTED = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
"""The API server has not started these requests when it adds `Retry-After`, so a write can be repeated, too."""


class KubeTransport:
    """Sends requests over kept connections. Must be closed.

    Args:
        load: reads the credentials. It is called again when the API server refuses them, since they may have been
            rotated: a client certificate, or a token of a credential plug-in.
    """

    def __init__(self, access: ClusterAccess, load: Callable[[], Awaitable[ClusterAccess]]) -> None:
        self._load = load
        self._access = access
        self._rest = _rest_client(access)
        self._retired: list[ApiServerClient] = []
        """The client with the last credentials, whose watches may still run."""
        self._reloading = asyncio.Lock()

    @property
    def host(self) -> str:
        return str(self._access.configuration.host)

    async def close(self) -> None:
        for rest in (self._rest, *self._retired):
            await rest.close()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: ClientTimeout | None = None,
    ) -> AsyncIterator[ClientResponse]:
        """Sends a request, and closes the response at the end of the block. Raises `KubeApiError`."""
        url = f"{path}?{urlencode(parameters)}" if parameters else path
        with self.connection_errors():
            response = await self._send(method, url, body, content_type, timeout or request_timeout())
        async with response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                with self.connection_errors():
                    raise response_error(response.status, await response.read())
            yield response

    @asynccontextmanager
    async def open_websocket(
        self, path: str, *, parameters: Mapping[str, str], protocol: str
    ) -> AsyncIterator[ClientWebSocketResponse]:
        """Opens a websocket, and closes it at the end of the block. Raises `KubeApiError`."""
        url, access = f"{path}?{urlencode(parameters)}", self._access
        async with AsyncExitStack() as stack:
            try:
                socket = await stack.enter_async_context(self._websocket(url, protocol))
            except KubeUnauthorizedError:
                await self._reload(access)
                socket = await stack.enter_async_context(self._websocket(url, protocol))
            yield socket

    @asynccontextmanager
    async def _websocket(self, url: str, protocol: str) -> AsyncIterator[ClientWebSocketResponse]:
        from aiohttp import ClientSession, WSServerHandshakeError

        from cornserve.kubernetes.connections import ApiServerConnector

        connector = ApiServerConnector(self._rest.ssl_context, limit=0)
        async with ClientSession(connector=connector, timeout=websocket_timeout()) as session:
            with self.connection_errors():
                try:
                    async with asyncio.timeout(READ_SECONDS):
                        socket = await session.ws_connect(
                            self.host + url,
                            protocols=[protocol],
                            headers=await self._headers(),
                            max_msg_size=0,
                            proxy=self._rest.proxy,
                            proxy_headers=self._rest.proxy_headers,
                        )
                except WSServerHandshakeError as error:
                    text = f"the Kubernetes API server refuses {url} with HTTP status {error.status}"
                    raise response_error(error.status, text.encode()) from error
            async with socket:
                yield socket

    @contextmanager
    def connection_errors(self) -> Iterator[None]:
        """Raises errors of a connection as `KubeUnavailableError`. Used while a response is read."""
        from aiohttp import ClientError

        try:
            yield
        except (ClientError, TimeoutError, OSError) as error:
            raise unreachable_error(self.host, error) from error

    async def _send(
        self, method: str, url: str, body: Any, content_type: str, timeout: ClientTimeout
    ) -> ClientResponse:
        reloaded = False
        retries = 0
        while True:
            access = self._access
            response = await self._send_once(method, url, body, content_type, timeout)
            if response.status == HTTPStatus.UNAUTHORIZED and not reloaded and await self._reload(access):
                reloaded = True
            elif (pause := _retry_after(response)) is not None and retries < MAX_RETRIES:
                retries += 1
                await asyncio.sleep(pause)
            else:
                return response
            response.close()

    async def _send_once(
        self, method: str, url: str, body: Any, content_type: str, timeout: ClientTimeout
    ) -> ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": content_type, **await self._headers()}
        result = await self._rest.request(method, self.host + url, headers, body, _request_timeout=timeout)
        response: ClientResponse = result.response
        return response

    async def _headers(self) -> dict[str, str]:
        """Returns the headers of every request, with the credentials."""
        settings = (await self._access.configuration.auth_settings()).values()
        return {"User-Agent": "cornserve", **{setting["key"]: setting["value"] for setting in settings}}

    async def _reload(self, refused: ClusterAccess) -> bool:
        """Reads the credentials again, unless another request has done so since `refused` was used.

        Returns whether there are other credentials.
        """
        async with self._reloading:
            if self._access is refused:
                try:
                    access = await self._load()
                    rest = _rest_client(access)
                except KubeConfigError as error:
                    log.warning("cannot read the credentials again: %s", error)
                    return False
                retired, self._access, self._rest = self._rest, access, rest
                await self._retire(retired)
        return True

    async def _retire(self, rest: ApiServerClient) -> None:
        """Keeps a client whose watches may still run, and closes the one before."""
        for earlier in self._retired:
            await earlier.close()
        self._retired = [rest]


def request_timeout() -> ClientTimeout:
    from aiohttp import ClientTimeout

    return ClientTimeout(total=REQUEST_SECONDS, connect=CONNECT_SECONDS, sock_read=READ_SECONDS)


def watch_timeout(silent_seconds: float) -> ClientTimeout:
    """Returns the timeouts of a watch, which ends when nothing arrives for `silent_seconds`."""
    from aiohttp import ClientTimeout

    return ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silent_seconds)


def websocket_timeout() -> ClientTimeout:
    """Returns the timeouts of a websocket, which may be silent once it is open."""
    from aiohttp import ClientTimeout

    return ClientTimeout(total=None, connect=CONNECT_SECONDS)


def _rest_client(access: ClusterAccess) -> ApiServerClient:
    """Raises `KubeConfigError` if the certificates or the key cannot be used."""
    from cornserve.kubernetes.connections import ApiServerClient

    try:
        return ApiServerClient(access.configuration)
    except OSError as error:  # `ssl.SSLError` is one
        host = access.configuration.host
        raise KubeConfigError(f"cannot use the certificates for the API server {host}: {error}") from error


def _retry_after(response: ClientResponse) -> float | None:
    """Returns the pause that the API server asks for, or None."""
    if response.status not in UNSTARTED:
        return None
    try:
        seconds = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
    return seconds if 0 <= seconds <= MAX_RETRY_AFTER_SECONDS else None
