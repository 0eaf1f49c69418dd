"""A simple proxy: FastAPI on uvicorn, and aiohttp's client.

`python -m benchmarks.peers.fastapi_proxy PORT ENGINE`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from benchmarks.peers.server import serve


def create_api(engine: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as api.state.client:
            yield

    api = FastAPI(lifespan=lifespan)

    @api.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        client: aiohttp.ClientSession = request.app.state.client
        response = await client.post(f"http://{engine}/v1/chat/completions", data=await request.body())
        media_type = response.headers["content-type"]
        if media_type == "text/event-stream":
            return StreamingResponse(_chunks(response), response.status, media_type=media_type)
        return Response(await response.read(), response.status, media_type=media_type)

    return api


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with response:
        async for chunk in response.content.iter_any():
            yield chunk


if __name__ == "__main__":
    serve(create_api(sys.argv[2]), int(sys.argv[1]))
