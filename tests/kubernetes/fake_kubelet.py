"""A node without containers: the executors of its pods are processes on loopback addresses.

It writes the same status as a kubelet: container states, restarts with a delay, conditions, termination messages; it
probes the health service, ends pods within their grace period, and serves their logs to the API server.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
from aiohttp import web
from grpc_health.v1 import health_pb2

from cornserve.control.launcher.kubernetes.names import CONTAINER, HEALTH_PORT, INVOCATION_PORT
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import PODS, JsonObject
from tests.kubernetes.api_server import ApiServer

PROBE_SECONDS = 0.05
FIRST_RESTART_SECONDS = 0.05
HEARTBEAT_SECONDS = 10.0
MESSAGE_BYTES = 2048


@dataclass
class NodeFiles:
    """The files that a node mounts into its pods, and their logs."""

    directory: Path
    secret: Path

    def log(self, pod: str, restarts: int) -> Path:
        return self.directory / f"{pod}.{restarts}.log"


class FakeKubelet:
    """One node of an API server. It runs the pods of one namespace."""

    def __init__(
        self, server: ApiServer, client: KubeClient, name: str, files: NodeFiles, labels: Mapping[str, str]
    ) -> None:
        self._server = server
        self._client = client
        self._name = name
        self._files = files
        self._labels = {"kubernetes.io/hostname": name, **labels}
        self._pods = Informer(client, PODS, field_selector=f"spec.nodeName={name}")
        self._workers: dict[str, PodWorker] = {}
        self._tasks: asyncio.TaskGroup

    @asynccontextmanager
    async def running(self, capacity: JsonObject) -> AsyncIterator[None]:
        """Registers the node, and runs the pods that the scheduler assigns to it. The processes end with the block."""
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(_serving_logs(self._files, self._pods, self._server))
            await asyncio.to_thread(self._register, capacity, port)
            stack.callback(self._server.request, "DELETE", f"/api/v1/nodes/{self._name}")
            following = asyncio.create_task(self._run())
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                for worker in self._workers.values():
                    worker.kill()

    def _register(self, capacity: JsonObject, port: int) -> None:
        path = f"/api/v1/nodes/{self._name}"
        metadata = {"name": self._name, "labels": self._labels}
        self._server.request("POST", "/api/v1/nodes", {"metadata": metadata})
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [_ready_condition()],
        }
        self._server.request("PUT", f"{path}/status", {"metadata": metadata, "status": status})
        while self._has_taints(path):
            pass

    def _has_taints(self, path: str) -> bool:
        """Removes the taint of nodes that the controller manager has not seen, and returns whether to try again."""
        node = self._server.request("GET", path)
        if not node["spec"].pop("taints", None):
            return False
        with suppress(httpx2.HTTPStatusError):  # The controller manager writes the node as well.
            self._server.request("PUT", path, node)
        return True

    async def _send_heartbeats(self) -> None:
        """Keeps the node ready. Runs until cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            path = f"/api/v1/nodes/{self._name}"
            with suppress(httpx2.HTTPStatusError):
                node = await asyncio.to_thread(self._server.request, "GET", path)
                node["status"]["conditions"] = [_ready_condition()]
                await asyncio.to_thread(self._server.request, "PUT", f"{path}/status", node)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._pods.run())
            self._tasks.create_task(self._send_heartbeats())
            while True:
                changed = self._pods.next_change()
                for name, pod in self._pods.objects.items():
                    if name not in self._workers:
                        worker = PodWorker(self._server, self._client, pod, self._files)
                        self._workers[name] = worker
                        self._tasks.create_task(worker.run())
                    if "deletionTimestamp" in pod["metadata"]:
                        self._workers[name].end()
                for name in self._workers.keys() - self._pods.objects.keys():
                    self._workers.pop(name).kill()
                await changed.wait()

    def kill(self, pod: str) -> None:
        """Kills the process of the pod's container."""
        if pod in self._workers:
            self._workers[pod].kill()


@dataclass
class PodWorker:
    server: ApiServer
    client: KubeClient
    pod: JsonObject
    files: NodeFiles
    restarts: int = 0
    last_state: JsonObject = field(default_factory=dict)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    ready_at: str = ""
    is_ready: bool = False

    def __post_init__(self) -> None:
        self.name: str = self.pod["metadata"]["name"]
        self.started_at = self.ready_at = _time()
        self.address = f"127.{random.randrange(16, 250)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        self.container = next(each for each in self.pod["spec"]["containers"] if each["name"] == CONTAINER)

    def end(self) -> None:
        self.ending.set()

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()

    async def run(self) -> None:
        with suppress(KubeNotFoundError):
            delay = FIRST_RESTART_SECONDS
            while not self.ending.is_set():
                await self._run_container()
                if not self.ending.is_set():
                    reason = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
                    await self._write({"waiting": reason})
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self.ending.wait()
                delay = min(2 * delay, 1.0)
                self.restarts += 1
        uid = self.pod["metadata"]["uid"]
        path = f"/api/v1/namespaces/{self.client.namespace}/pods/{self.name}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await asyncio.to_thread(self.server.request, "DELETE", path, options)

    async def _run_container(self) -> None:
        began = _time()
        with self.files.log(self.name, self.restarts).open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.container["command"][1:],
                *self._arguments(),
                env={**os.environ, **self._environment()},
                stdout=log,
                stderr=log,
            )
        await self._write({"running": {"startedAt": began}})
        probing = asyncio.create_task(self._probe(began))
        stopping = asyncio.create_task(self._terminate())
        code = await self.process.wait()
        for task in (probing, stopping):
            task.cancel()
        await asyncio.gather(probing, stopping, return_exceptions=True)
        ended = {"startedAt": began, "finishedAt": _time(), "exitCode": code if code >= 0 else 128 - code}
        if code:
            log_text = self.files.log(self.name, self.restarts).read_text()
            ended |= {"reason": "Error", "message": log_text[-MESSAGE_BYTES:]}
        self._set_ready(False)
        await self._write({"terminated": ended})
        self.last_state = {"terminated": ended}

    def _arguments(self) -> list[str]:
        replaced = {"--secret": str(self.files.secret), "--shared-memory": str(self.files.directory)}
        replaced |= {"--listen": f"{self.address}:{INVOCATION_PORT}"}
        given = self.container["args"]
        return [replaced.get(option, value) for option, value in zip(["", *given], given, strict=False)]

    def _environment(self) -> dict[str, str]:
        fields = {"metadata.name": self.name}
        return {
            each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            for each in self.container["env"]
        }

    async def _probe(self, began: str) -> None:
        async with grpc.aio.insecure_channel(f"{self.address}:{HEALTH_PORT}") as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            while True:
                response = None
                with suppress(grpc.aio.AioRpcError):
                    response = await check(health_pb2.HealthCheckRequest())
                is_ready = response is not None and response.status == health_pb2.HealthCheckResponse.SERVING
                if is_ready != self.is_ready:
                    self._set_ready(is_ready)
                    await self._write({"running": {"startedAt": began}})
                await asyncio.sleep(PROBE_SECONDS)

    async def _terminate(self) -> None:
        await self.ending.wait()
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(self.pod["spec"]["terminationGracePeriodSeconds"])
        self.process.kill()

    def _set_ready(self, is_ready: bool) -> None:
        if is_ready != self.is_ready:
            self.is_ready, self.ready_at = is_ready, _time()

    async def _write(self, state: JsonObject) -> None:
        ready = "True" if self.is_ready else "False"
        status = {
            "name": CONTAINER,
            "image": self.container["image"],
            "imageID": "",
            "state": {name: state.get(name) for name in ("running", "terminated", "waiting")},
            "lastState": self.last_state,
            "restartCount": self.restarts,
            "ready": self.is_ready,
            "started": "running" in state,
        }
        conditions = [{"type": "PodScheduled", "status": "True"}]
        conditions += [
            {"type": type, "status": ready, "lastTransitionTime": self.ready_at}
            for type in ("Ready", "ContainersReady")
        ]
        body: dict[str, Any] = {
            "phase": "Running",
            "startTime": self.started_at,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "containerStatuses": [status],
            "conditions": conditions,
        }
        await self.client.merge_patch(PODS, self.name, {"status": body}, subresource="status")


@asynccontextmanager
async def _serving_logs(files: NodeFiles, pods: Informer, server: ApiServer) -> AsyncIterator[int]:
    """Serves the part of a kubelet's API that reads logs, and yields the port."""

    async def logs(request: web.Request) -> web.Response:
        pod = pods.objects[request.match_info["pod"]]
        [status] = pod["status"]["containerStatuses"]
        restarts = status["restartCount"] - (request.query.get("previous") == "true")
        log = files.log(request.match_info["pod"], restarts)
        lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
        return web.Response(body=b"".join(lines[-int(request.query["tailLines"]) :]))

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", logs)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server.files.directory / "server.crt", server.files.directory / "server.key")
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        assert runner.addresses
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _ready_condition() -> JsonObject:
    times = {"lastHeartbeatTime": _time(), "lastTransitionTime": _time()}
    return {"type": "Ready", "status": "True", "reason": "Test", "message": "", **times}


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
