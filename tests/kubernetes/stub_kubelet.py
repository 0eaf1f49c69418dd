"""A kubelet without containers: the API server forwards ports and reads logs through it as through a real one."""

from __future__ import annotations

import asyncio
import ssl
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Final

from aiohttp import WSMsgType, web

PROTOCOL: Final = "v4.channel.k8s.io"

LOG_START: Final = datetime(2026, 1, 1)
LINE_INTERVAL: Final = timedelta(milliseconds=300)


@dataclass
class StubKubelet:
    port: int = 0
    ports: dict[str, int] = field(default_factory=dict)
    """The port on this machine that takes the place of all ports of a pod, by the pod's name."""
    logs: dict[tuple[str, bool], str] = field(default_factory=dict)
    """The logs by pod, and whether it is the log of the previous container."""
    requests: list[str] = field(default_factory=list)
    """The pod of each request for a log."""
    connections: list[str] = field(default_factory=list)
    """The pod of each forwarded connection."""


@contextmanager
def stub_kubelet(files: Path) -> Iterator[StubKubelet]:
    """Runs a kubelet in a thread.

    Args:
        files: a directory with `server.crt` and `server.key`.
    """
    kubelet, started, stopping = StubKubelet(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files / "server.crt", files / "server.key")
        runner = web.AppRunner(_application(kubelet), handle_signals=False, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        kubelet.port = runner.addresses[0][1]
        started.set()
        await stopping.wait()
        await site.stop()
        while runner.server is not None and runner.server.connections:  # Ends when the API server has closed all.
            await asyncio.sleep(0.01)
        await runner.cleanup()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(30)
    yield kubelet
    loop.call_soon_threadsafe(stopping.set)
    thread.join()


def _application(kubelet: StubKubelet) -> web.Application:
    async def forward(request: web.Request) -> web.WebSocketResponse:
        pod = request.match_info["pod"]
        kubelet.connections.append(pod)
        socket = web.WebSocketResponse(protocols=[PROTOCOL], max_msg_size=0)
        await socket.prepare(request)
        port = int(request.query["port"]).to_bytes(2, "little")
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + port)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.ports[pod])
        except (OSError, KeyError):
            await socket.send_bytes(b"\1error forwarding port: dial tcp4 127.0.0.1: connect: connection refused")
        else:
            await _pump(socket, reader, writer)
        await socket.close()
        return socket

    async def log(request: web.Request) -> web.Response:
        kubelet.requests.append(request.match_info["pod"])
        key = (request.match_info["pod"], request.query.get("previous") == "true")
        if key not in kubelet.logs:
            return web.Response(status=400, text="previous terminated container not found")
        return web.Response(body=_selected(kubelet.logs[key], request.query))

    async def close_connection(_: web.Request, response: web.StreamResponse) -> None:
        response.force_close()

    application = web.Application()
    application.on_response_prepare.append(close_connection)
    application.router.add_get("/portForward/{namespace}/{pod}", forward)
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", log)
    return application


def _selected(content: str, query: Mapping[str, str]) -> bytes:
    """Returns the part of a log that a request asks for. Every line is `LINE_INTERVAL` later than the one before."""
    lines = StringIO(content).readlines()
    times = [(LOG_START + index * LINE_INTERVAL).isoformat() for index in range(len(lines))]
    first = bisect_left(times, query["sinceTime"].removesuffix("Z")) if "sinceTime" in query else 0
    first = max(first, len(lines) - int(query.get("tailLines", len(lines))))
    stamped = [f"{time}Z {line}" for time, line in zip(times, lines, strict=True)]
    selected = "".join((stamped if query.get("timestamps") == "true" else lines)[first:]).encode()
    return selected[: int(query.get("limitBytes", len(selected)))]


async def _pump(socket: web.WebSocketResponse, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def to_socket() -> None:
        while data := await reader.read(32768):
            await socket.send_bytes(b"\0" + data)
        await socket.close()

    sending = asyncio.create_task(to_socket())
    async for message in socket:
        if message.type is WSMsgType.BINARY and message.data[0] == 0:
            writer.write(message.data[1:])
            await writer.drain()
    sending.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await sending
    writer.close()
