"""A proxy without a framework: an ASGI function on uvicorn, and aiohttp's client.

`python -m benchmarks.peers.bare_asgi PORT ENGINE`.
"""

from __future__ import annotations

import sys

import aiohttp
from starlette.types import Receive, Scope, Send

from benchmarks.peers.server import serve


class AsgiProxy:
    def __init__(self, engine: str) -> None:
        self._url = f"http://{engine}"
        self._client: aiohttp.ClientSession

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._forward(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        async with self._client.post(self._url + scope["path"], data=body) as response:
            headers = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body"})


async def _read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


if __name__ == "__main__":
    serve(AsgiProxy(sys.argv[2]), int(sys.argv[1]))
