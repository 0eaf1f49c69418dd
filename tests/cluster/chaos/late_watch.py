"""Delays what gateways hear from the API server: a TCP proxy at the address of the control plane.

`python -m tests.cluster.chaos.late_watch HOST PORT TARGET_PORT SECONDS` runs the proxy.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from scripts.cluster.machines import CONTROL_PLANE
from scripts.cluster.programs import ROOT

PORT = 7443
API_SERVER_PORT = 6443
PROMPT_SECONDS = 1.0
"""Responses in the first second of a connection are not delayed: clients expect a quick TLS handshake."""

GATEWAY_ENVIRONMENT = [
    {"name": "KUBERNETES_SERVICE_HOST", "value": CONTROL_PLANE.address},
    {"name": "KUBERNETES_SERVICE_PORT", "value": str(PORT)},
]
"""The environment of gateways that use the proxy."""


@contextmanager
def late_api_server(seconds: float) -> Iterator[None]:
    """Runs the proxy on the control plane, whose address is in the certificate of the API server.

    Fails if the proxy had nothing to delay.
    """
    module = [sys.executable, "-m", "tests.cluster.chaos.late_watch"]
    arguments = [CONTROL_PLANE.address, str(PORT), str(API_SERVER_PORT), str(seconds)]
    namespace = f"--net=/run/netns/{CONTROL_PLANE.network_namespace}"
    command = ["nsenter", namespace, *module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            yield
            process.terminate()
            assert "late\n" in process.stdout.read()
        finally:
            process.kill()


async def _main(host: str, port: int, target_port: int, seconds: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        api_reader, api_writer = await asyncio.open_connection(host, target_port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_forward(reader, api_writer, 0))
            tasks.create_task(_forward(api_reader, writer, seconds))

    server = await asyncio.start_server(accept, host, port)
    print("listening", flush=True)
    await server.serve_forever()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def receive() -> None:
        content = b"opened"
        while content:
            with suppress(OSError):
                content = await reader.read(65536)
            now = loop.time()
            is_late = bool(delay) and now > started + PROMPT_SECONDS
            if is_late:
                print("late", flush=True)
            chunks.put_nowait((now + delay if is_late else now, content))

    receiving = asyncio.create_task(receive())
    with suppress(OSError):
        while True:
            at, content = await chunks.get()
            await asyncio.sleep(at - loop.time())
            if not content:
                break
            writer.write(content)
            await writer.drain()
    writer.close()
    receiving.cancel()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
