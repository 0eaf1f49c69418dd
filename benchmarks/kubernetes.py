#!/usr/bin/env python3
"""Measures what Cornserve costs on a Kubernetes cluster: time to converge, CPU time, memory, requests to its API.

Etcd, API server, controller manager and scheduler are real; kwok imitates nodes and pods, so that no executor runs.
The programs are built by `make programs`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
from rich.table import Table

from benchmarks.harness.instance import free_port
from benchmarks.harness.kubernetes.fake_cluster import NAMESPACE, FakeCluster, running_fake_cluster
from benchmarks.harness.kubernetes.usage import PhaseUsage, UsageMeter
from benchmarks.harness.machine import MachineInfo
from benchmarks.harness.processes import running_process
from benchmarks.harness.report import create_table, print_report
from benchmarks.harness.sampler import START_SIGNAL
from cornserve.instance_secret import InstanceSecret
from scripts.cluster.programs import ProgramMissingError

APPS = f"/apis/cornserve.ai/v1alpha1/namespaces/{NAMESPACE}/apps"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
INSTANCE = "benchmark"
POLL_SECONDS = 0.25
CONVERGE_SECONDS = 3600.0

SOURCE = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="{name}", paths=[EchoTask(prefix="{prefix}")])
"""

SETTINGS = f"""
instance: {INSTANCE}
cpu: {{image: localhost/executor}}
gpu: {{image: localhost/executor}}
secretName: cornserve
"""


@dataclass(frozen=True, slots=True)
class Size:
    nodes: int
    apps: int
    replicas: int
    """The sum over all apps."""
    idle_seconds: float

    @property
    def replicas_per_app(self) -> int:
        return max(1, self.replicas // self.apps)


class ScaleBenchmark:
    """Deploys, scales and changes apps on a cluster, and waits for Cornserve."""

    def __init__(self, cluster: FakeCluster, size: Size, gateway: httpx2.Client) -> None:
        self._cluster = cluster
        self._size = size
        self._gateway = gateway

    def measure(self, meter: UsageMeter) -> Iterator[PhaseUsage]:
        """Yields the costs of each phase."""
        self._deploy()
        yield meter.stop("deploy")
        self._wait_until_quiet()
        meter.start()
        time.sleep(self._size.idle_seconds)
        yield meter.stop("idle")
        meter.start()
        self._change("app-0", {"replicas": self._size.replicas_per_app + 1})
        yield meter.stop("scale one app")
        meter.start()
        self._change("app-0", {"source": {"inline": SOURCE.format(name="app-0", prefix="changed")}})
        self._wait("its old executors end", lambda: len(self._list(DEPLOYMENTS)) == self._size.apps)
        yield meter.stop("change one app")

    def wait_until_started(self) -> None:
        """Waits until the controller leads and the gateway is ready."""
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        self._wait("the controller leads", lambda: bool(self._list(leases)))
        self._wait("the gateway is ready", lambda: self._served() is not None)

    def _deploy(self) -> None:
        apps = [
            {
                "apiVersion": "cornserve.ai/v1alpha1",
                "kind": "App",
                "metadata": {"name": f"app-{number}"},
                "spec": {
                    "source": {"inline": SOURCE.format(name=f"app-{number}", prefix=number)},
                    "replicas": self._size.replicas_per_app,
                },
            }
            for number in range(self._size.apps)
        ]
        manifest = {"apiVersion": "v1", "kind": "List", "items": apps}
        self._cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
        self._wait("all apps are ready", lambda: all(map(_is_ready, self._list(APPS))))
        self._wait("the gateway serves all apps", lambda: self._served() == self._size.apps)

    def _change(self, name: str, spec: dict[str, Any]) -> None:
        """Changes the spec of an app and waits until the app serves it."""
        self._cluster.request("PATCH", f"{APPS}/{name}", {"spec": spec}, "application/merge-patch+json")
        self._wait("the app is ready", lambda: _is_ready(self._cluster.request("GET", f"{APPS}/{name}")))

    def _served(self) -> int | None:
        """Returns the number of apps that the gateway serves, or None if it is not ready."""
        try:
            models = self._gateway.get("/v1/models")
        except httpx2.TransportError:
            return None
        return len(models.json()["data"]) if models.status_code == 200 else None

    def _wait_until_quiet(self) -> None:
        """Waits until the statuses of all apps stay as they are."""
        versions: list[str] = []

        def is_quiet() -> bool:
            nonlocal versions
            time.sleep(2)
            before = versions
            versions = [app["metadata"]["resourceVersion"] for app in self._list(APPS)]
            return versions == before

        self._wait("nothing changes any more", is_quiet)

    def _list(self, path: str) -> list[Any]:
        items: list[Any] = self._cluster.request("GET", path)["items"]
        return items

    def _wait(self, condition: str, is_met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + CONVERGE_SECONDS
        while not is_met():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {CONVERGE_SECONDS:g} s until {condition}")
            time.sleep(POLL_SECONDS)


def _is_ready(app: Any) -> bool:
    generation, status = app["metadata"]["generation"], app.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    ready = conditions.get("Ready", {})
    if conditions.get("Degraded", {}).get("status") == "True":
        raise RuntimeError(f"the app {app['metadata']['name']} failed: {ready.get('message')}")
    return bool(
        ready.get("status") == "True"
        and ready.get("observedGeneration") == generation
        and status.get("readyReplicas") == app["spec"]["replicas"]
    )


@contextmanager
def running_cornserve(
    cluster: FakeCluster, directory: Path, profile: Path | None
) -> Iterator[tuple[dict[str, int], httpx2.Client]]:
    """Runs a controller and a gateway. Yields their process ids, and a client of the gateway.

    Args:
        profile: where the stacks of both are written, with their names as suffixes.
    """
    settings, secret, port = directory / "settings.yaml", directory / "secret", free_port()
    settings.write_text(SETTINGS)
    InstanceSecret.load_or_create(secret)
    controller = ["cornserve.control", "--kubernetes", "--cluster-settings", str(settings)]
    controller += ["--health-port", str(free_port()), "--secret", str(secret)]
    gateway = ["cornserve.gateway", "--kubernetes", INSTANCE, "--port", str(port), "--secret", str(secret)]
    with ExitStack() as cleanup:
        processes = {"API server": cluster.api_server}
        for name, module in {"controller": controller, "gateway": gateway}.items():
            sampler = [] if profile is None else ["benchmarks.harness.sampler", f"{profile}.{name}"]
            command = [sys.executable, "-m", *sampler, *module, "--home", str(directory / name)]
            environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig(name))}
            log = directory / f"{name}.log"
            process = cleanup.enter_context(running_process(command, log, environment=environment))
            processes[name] = process.pid
        yield processes, cleanup.enter_context(httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False))


def measure(size: Size, profile: Path | None = None) -> list[PhaseUsage]:
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cornserve-benchmark-")))
        cluster = cleanup.enter_context(running_fake_cluster(directory))
        cluster.add_nodes(size.nodes)
        processes, gateway = cleanup.enter_context(running_cornserve(cluster, directory, profile))
        benchmark = ScaleBenchmark(cluster, size, gateway)
        benchmark.wait_until_started()
        if profile is not None:
            for name in ("controller", "gateway"):
                os.kill(processes[name], START_SIGNAL)
        phases = []
        for phase in benchmark.measure(UsageMeter(processes, cluster.audit_log)):
            print(f"{phase.phase}: {phase.seconds:.0f} s", file=sys.stderr)
            phases.append(phase)
        return phases


def _costs_table(phases: list[PhaseUsage]) -> Table:
    numbers = ["seconds"]
    for name in ("controller", "gateway"):
        numbers += [f"{name}: CPU, s", "MiB", "children, MiB", "requests"]
    table = create_table(["phase"], [*numbers, "API server: CPU, s"])
    for phase in phases:
        cells = [f"{phase.seconds:.1f}"]
        for name in ("controller", "gateway"):
            used, requests = phase.processes[name], phase.count_requests(name)
            cells += [f"{used.cpu_seconds:.2f}", f"{used.memory_mib:.0f}", f"{used.descendants_mib:.0f}"]
            cells.append(f"{requests} ({requests / phase.seconds:.1f}/s)")
        table.add_row(phase.phase, *cells, f"{phase.processes['API server'].cpu_seconds:.1f}")
    return table


def _requests_table(phases: list[PhaseUsage]) -> Table:
    table = create_table(["request"], [phase.phase for phase in phases], title="requests to the API server")
    for request in sorted({request for phase in phases for request in phase.requests}):
        table.add_row(request, *(str(phase.requests.get(request, 0)) for phase in phases))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100, metavar="N")
    parser.add_argument("--apps", type=int, default=50, metavar="N")
    parser.add_argument("--replicas", type=int, default=500, metavar="N", help="sum over all apps")
    parser.add_argument("--idle-seconds", type=float, default=60, metavar="S")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="sample controller and gateway")
    parser.add_argument("--quick", action="store_true", help="run a minimal measurement")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    machine = MachineInfo.current()
    size = Size(options.nodes, options.apps, options.replicas, options.idle_seconds)
    if options.quick:
        size = Size(nodes=2, apps=2, replicas=4, idle_seconds=2)
    try:
        phases = measure(size, options.profile)
    except ProgramMissingError as error:
        sys.exit(str(error))
    if options.json:
        print(json.dumps({"machine": asdict(machine), "size": asdict(size), "phases": list(map(asdict, phases))}))
        return
    note = f"{size.nodes} fake nodes, {size.apps} apps, {size.apps * size.replicas_per_app} replicas"
    print_report(machine, note, _costs_table(phases), _requests_table(phases))


if __name__ == "__main__":
    main()
