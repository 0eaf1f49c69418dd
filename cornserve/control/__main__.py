"""Runs a controller: `python -m cornserve.control --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from functools import partial
from pathlib import Path

from cornserve.app.arrivals import ARRIVALS_TOKEN
from cornserve.app_host.describe import describe_app
from cornserve.app_host.fork_client import ForkServer
from cornserve.concurrency import gather_all, run_unless
from cornserve.control.adaptation.arrival_reader import ArrivalReader
from cornserve.control.controller import Controller
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.slot_types import parse_slot_types
from cornserve.control.local_instance.apps_file import write_apps_file
from cornserve.control.metrics import ControllerMetrics
from cornserve.control.profiling.local_process import run_local_profiler
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_mirror import StoreMirror
from cornserve.gateway_reader import instance_gateways
from cornserve.heartbeat import start_heartbeats
from cornserve.home import PRIVATE_UMASK, Home
from cornserve.instance_secret import InstanceSecret, InstanceSecretError
from cornserve.limits import LimitError, Limits
from cornserve.observe import logs
from cornserve.observe.decision_file import write_decisions
from cornserve.observe.metrics_server import start_metrics_server
from cornserve.pull_protocol import PullProtocol
from cornserve.signals import stop_signals
from cornserve.wire.credentials import TlsFilesError

log = logging.getLogger("cornserve.controller")


def main() -> int:
    parser = argparse.ArgumentParser(prog="cornserve-controller", description=__doc__)
    parser.add_argument("--home", type=Path, default=Home.default().path)
    parser.add_argument("--kubernetes", action="store_true", help="run in a pod")
    parser.add_argument("--cluster-settings", type=Path, metavar="FILE", help="the settings of executors in pods")
    parser.add_argument("--health-port", type=int, default=9100, help="port of probes and metrics in a pod")
    parser.add_argument("--secret", type=Path, metavar="FILE", help="the instance's secret (default: in the home)")
    parser.add_argument("--gpus", type=int, help="number of the machine's GPUs to use (default: all)")
    parser.add_argument("--cpu-slots", type=int, help="number of executors that may run without GPUs (default: cores)")
    parser.add_argument("--slots", action="append", default=[], metavar="TYPE=COUNT", help="types of CPU slots")
    parser.add_argument("--metrics-port", type=int, help="port of the Prometheus metrics on 127.0.0.1")
    parser.add_argument("--tls", type=Path, metavar="DIR", help="use TLS for connections of executors")
    parser.add_argument("--transport", type=PullProtocol, choices=list(PullProtocol), default=PullProtocol.AUTO)
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    os.umask(PRIVATE_UMASK)
    logs.configure()
    write_decisions(Home(options.home).decisions, "controller")
    try:
        limits = Limits.parse(options.limit)
    except LimitError as error:
        print(error, file=sys.stderr)
        return 1
    if options.kubernetes:
        return _run_in_pod(options, limits)
    slots = DeviceSlots.detect(
        gpus=options.gpus, cpu_slots=options.cpu_slots, slot_types=parse_slot_types(options.slots)
    )
    home = Home(options.home)
    asyncio.run(run_controller(home, slots, limits, options.metrics_port, options.tls, options.transport))
    return 0


def _run_in_pod(options: argparse.Namespace, limits: Limits) -> int:
    # They load the client of Kubernetes.
    from cornserve.control.cluster_controller import run_cluster_controller
    from cornserve.control.launcher.kubernetes.settings import ClusterSettingsError
    from cornserve.control.single_installation import SecondInstallationError
    from cornserve.kubernetes.errors import KubeApiError, KubeConfigError
    from cornserve.kubernetes_resources.schema_check import OutdatedCrdError

    secret = options.secret or Home(options.home).secret
    run = run_cluster_controller(
        options.cluster_settings, limits, secret=secret, tls=options.tls, health_port=options.health_port
    )
    errors = (ClusterSettingsError, KubeConfigError, KubeApiError, OutdatedCrdError, SecondInstallationError)
    try:
        asyncio.run(run)
    except (*errors, InstanceSecretError, TlsFilesError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def run_controller(
    home: Home,
    slots: DeviceSlots,
    limits: Limits,
    metrics_port: int | None = None,
    tls: Path | None = None,
    transport: PullProtocol = PullProtocol.AUTO,
) -> None:
    """Runs the controller until a stop signal. Executors keep running: the next controller adopts them."""
    store = SqliteStore(home.store, mirror=StoreMirror(home.store))
    launcher = LocalLauncher(
        home,
        slots,
        tls=tls,
        drain_seconds=limits.request_seconds,
        queue=limits.queue,
        slab_mib=limits.slab_mib,
        transport=transport,
    )
    fork_server = ForkServer()
    try:
        start_heartbeats(lambda: True)
        await launcher.start()
        token = InstanceSecret.load(home.secret).token(ARRIVALS_TOKEN)
        arrivals = ArrivalReader(partial(instance_gateways, home), token)
        describe = partial(describe_app, fork_server, limits)
        profiler = partial(run_local_profiler, home)
        controller = Controller(store, launcher, describe, arrivals=arrivals, profiler=profiler)
        if metrics_port is not None:
            _serve_metrics(controller.metrics, metrics_port)
        works = [controller.run(), store.watch_file(), write_apps_file(store, home.apps_file)]
        await run_unless(stop_signals(), gather_all(works))
    finally:
        await fork_server.close()
        await launcher.close()
        await store.close()


def _serve_metrics(metrics: ControllerMetrics, port: int) -> None:
    """Serves the metrics if the port is free.

    The supervisor has chosen the port before it started this process. Another process may use it since then.
    """
    try:
        start_metrics_server("127.0.0.1", port, metrics.registry)
    except OSError as error:
        log.error("metrics are not served: cannot use port %d: %s", port, error.strerror)


if __name__ == "__main__":
    sys.exit(main())
