"""The API `metrics.k8s.io`, which reports to the HorizontalPodAutoscaler the CPU usage that a test has chosen."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from cornserve.kubernetes.resources import JsonObject
from scripts.cluster.certificates import write_certificates
from scripts.cluster.machines import HOST_ADDRESS
from tests.cluster.chaos.echo_installation import EchoInstallation

GROUP_VERSION: Final = "metrics.k8s.io/v1beta1"
API_SERVICE: Final = "v1beta1.metrics.k8s.io"


class MetricsApi:
    """Reports the same usage for each gateway."""

    def __init__(self, installation: EchoInstallation) -> None:
        self._installation = installation
        self.cpu = "100m"

    @asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[None]:
        """Serves on this machine, to which the API server forwards the requests."""
        write_certificates(directory, [HOST_ADDRESS])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(directory / "server.crt", directory / "server.key")
        api = web.Application()
        api.router.add_get(f"/apis/{GROUP_VERSION}", self._resources)
        api.router.add_get(f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/pods", self._pods)
        runner = web.AppRunner(api, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST_ADDRESS, 0, ssl_context=context).start()
            await asyncio.to_thread(self._register, runner.addresses[0][1])
            yield
        finally:
            await asyncio.to_thread(
                self._installation.kubectl, "delete", "apiservice", API_SERVICE, "--ignore-not-found"
            )
            await runner.cleanup()

    def _register(self, port: int) -> None:
        group, version = GROUP_VERSION.split("/")
        service = {"namespace": self._installation.namespace, "name": "metrics", "port": port}
        spec = {"group": group, "version": version, "service": service, "insecureSkipTLSVerify": True}
        self._installation.cluster.apply(
            self._installation.namespace,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "metrics"},
                "spec": {"type": "ExternalName", "externalName": HOST_ADDRESS},
            },
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": API_SERVICE},
                "spec": {**spec, "groupPriorityMinimum": 100, "versionPriority": 100},
            },
        )
        self._installation.kubectl("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=60s")

    async def _resources(self, request: web.Request) -> web.Response:
        pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        listing = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [pods]}
        return web.json_response(listing)

    async def _pods(self, request: web.Request) -> web.Response:
        pods = await asyncio.to_thread(self._installation.pods, "gateway")
        items = [self._usage(pod) for pod in pods]
        return web.json_response(
            {"kind": "PodMetricsList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}
        )

    def _usage(self, pod: JsonObject) -> JsonObject:
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "labels")}
        usage = {"name": "gateway", "usage": {"cpu": self.cpu, "memory": "100Mi"}}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"metadata": metadata, "timestamp": now, "window": "15s", "containers": [usage]}
