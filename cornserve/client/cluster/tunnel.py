"""A local port whose connections go to a gateway in a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from cornserve.client.cluster.errors import explained_errors
from cornserve.client.cluster.forwarding import Forwarding
from cornserve.client.cluster.gateway_service import GatewayService
from cornserve.kubernetes.client import KubeClient

FIELD_MANAGER = "cornserve-cli"


@dataclass(frozen=True, slots=True)
class LocalEnd:
    """The local end of a tunnel."""

    url: str
    admin_token: str | None
    """The admin token in the Secret of the installation, or None if it cannot be read."""
    place: str
    """The cluster and the namespace in messages."""


class ClusterTunnel:
    """Listens on a free port of this machine until it is closed.

    Runs an event loop in a thread, so that clients with and without an event loop can use it.
    """

    def __init__(self, context: str | None, namespace: str | None) -> None:
        self._context = context
        self._namespace = namespace
        self._opened: Future[LocalEnd] = Future()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-tunnel", daemon=True)

    def open(self) -> LocalEnd:
        """Raises `ClusterError` if a gateway cannot be reached."""
        self._thread.start()
        try:
            return self._opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all connections."""
        with suppress(RuntimeError):  # The loop has ended.
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve_until_closed())

    async def _serve_until_closed(self) -> None:
        serving = asyncio.create_task(self._serve())
        closing = asyncio.create_task(self._closing.wait())
        await asyncio.wait((serving, closing), return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        closing.cancel()

    async def _serve(self) -> None:
        try:
            with explained_errors(self._context):
                await self._listen()
        except Exception as error:
            self._opened.set_exception(error)

    async def _listen(self) -> None:
        connecting = KubeClient.connect(context=self._context, namespace=self._namespace, field_manager=FIELD_MANAGER)
        async with connecting as client:
            place = _place(client, self._context)
            service = await GatewayService.find(client, place)
            pod = await service.ready_pod()
            token = await service.admin_token(pod)
            forwarding = Forwarding(client, service, pod, self._context)
            try:
                async with await asyncio.start_server(forwarding.run, "127.0.0.1", 0) as server:
                    port = server.sockets[0].getsockname()[1]
                    self._opened.set_result(LocalEnd(f"http://127.0.0.1:{port}", token, place))
                    await server.serve_forever()
            finally:
                await forwarding.close()


def _place(client: KubeClient, context: str | None) -> str:
    cluster = f"the context {context!r}" if context else f"the cluster {client.host}"
    return f"the namespace {client.namespace!r} of {cluster}"
