"""Runs the controller of a Kubernetes namespace: one of its replicas leads, the others wait."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from uuid import uuid4

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from cornserve.app.arrivals import ARRIVALS_TOKEN
from cornserve.app_host.describe import describe_app
from cornserve.app_host.fork_client import ForkServer
from cornserve.concurrency import run_unless
from cornserve.control.adaptation.arrival_reader import ArrivalReader
from cornserve.control.cluster_app_observer import ClusterAppObserver
from cornserve.control.cluster_gateways import cluster_gateways
from cornserve.control.controller import Controller
from cornserve.control.launcher.kubernetes.launcher import KubernetesLauncher
from cornserve.control.launcher.kubernetes.names import FIELD_MANAGER
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.cluster_job import ClusterProfiler
from cornserve.control.single_installation import check_single_installation
from cornserve.control.store.config_map_sources import ConfigMapSources
from cornserve.control.store.kubernetes import SPEC_MANAGER, KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.lease_election import LeaseElection
from cornserve.kubernetes.resources import APPS, CONFIG_MAPS
from cornserve.kubernetes_resources.schema_check import check_schemas
from cornserve.limits import Limits
from cornserve.signals import stop_signals
from cornserve.wire.credentials import ConnectionCredentials

POD_NAME_VARIABLE = "POD_NAME"


class ClusterController:
    """Reconciles the apps of a namespace while it holds the Lease of the installation."""

    def __init__(
        self, client: KubeClient, settings: ClusterSettings, limits: Limits, secret: Path, tls: Path | None
    ) -> None:
        self._client = client
        self._settings = settings
        self._limits = limits
        self._load_credentials = partial(ConnectionCredentials.load, secret, tls)
        self._fork_server = ForkServer()
        self._metrics = CollectorRegistry()
        identity = f"{os.environ.get(POD_NAME_VARIABLE) or socket.gethostname()}_{uuid4().hex[:8]}"
        self._election = LeaseElection(client, f"{settings.instance}-controller", identity)

    async def run(self, health_port: int) -> None:
        """Runs until a stop signal. Executors keep running."""
        runner = web.AppRunner(self._health_api(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, port=health_port).start()
            await run_unless(stop_signals(), self._election.run(self._lead))
        finally:
            await self._fork_server.close()
            await runner.cleanup()

    async def _lead(self) -> None:
        launcher = KubernetesLauncher(self._client, self._settings, self._load_credentials)
        try:
            async with Informer(self._client, CONFIG_MAPS).running() as config_maps:
                records = KubernetesStore(self._client, record_codecs(self._settings.url))
                store = ConfigMapSources(records, config_maps)
                await launcher.start()
                describe = partial(describe_app, self._fork_server, self._limits)
                token = self._load_credentials().secret.token(ARRIVALS_TOKEN)
                controller = Controller(
                    store,
                    launcher,
                    describe,
                    ClusterAppObserver(self._client, FIELD_MANAGER, self._settings),
                    arrivals=ArrivalReader(partial(cluster_gateways, self._client, self._settings.instance), token),
                    profiler=ClusterProfiler(self._client, self._settings),
                    spec_store=KubernetesStore(self._client.with_field_manager(SPEC_MANAGER), record_codecs()),
                )
                self._metrics = controller.metrics.registry
                await controller.run()
        finally:
            self._metrics = CollectorRegistry()
            await launcher.close()

    def _health_api(self) -> web.Application:
        """Returns the probes and metrics. A replica that does not lead is ready too, or roll-outs would wait for it."""
        api = web.Application()
        api.router.add_get("/healthz", _respond_ok)
        api.router.add_get("/readyz", _respond_ok)
        api.router.add_get("/metrics", self._respond_metrics)
        return api

    async def _respond_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics), headers={"content-type": "text/plain; version=0.0.4"})


async def _respond_ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def run_cluster_controller(
    settings_file: Path, limits: Limits, *, secret: Path, tls: Path | None, health_port: int
) -> None:
    """Runs until a stop signal.

    Raises `ClusterSettingsError`, `InstanceSecretError`, `TlsFilesError`, `OutdatedCrdError`,
    `SecondInstallationError`, `KubeApiError`.
    """
    settings = ClusterSettings.load(settings_file)
    ConnectionCredentials.load(secret, tls)  # A controller that cannot use them must not lead.
    async with KubeClient.connect(field_manager=FIELD_MANAGER) as client:
        check_schemas(await client.openapi(APPS.api_version))
        await check_single_installation(client, settings.instance, settings.controller_name)
        await ClusterController(client, settings, limits, secret, tls).run(health_port)
