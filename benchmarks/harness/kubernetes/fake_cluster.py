"""Runs a Kubernetes control plane on a loopback port, whose nodes and pods are imitated by kwok."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.harness.processes import running_process
from scripts.cluster.control_plane import ControlPlaneFiles
from scripts.cluster.programs import ROOT, program

CRDS = ROOT / "helm" / "cornserve-crds" / "templates"
STAGES = Path(__file__).with_name("stages.yaml")
NAMESPACE = "benchmark"
START_SECONDS = 60.0

POD_NETWORK = "198.18.0.0/15"
"""Addresses for benchmarks (RFC 2544), which no network routes: nothing answers at the addresses of fake pods."""

CLIENT_LIMITS = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""The components of Kubernetes shall not limit their requests: the defaults would delay thousands of pods."""

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: [controller, gateway]}
- {level: None}
"""


class FakeCluster:
    """A running cluster with the CRDs of the chart and an empty namespace."""

    def __init__(self, files: ControlPlaneFiles, api_server: int) -> None:
        self.files = files
        self.api_server = api_server
        """The process id of the API server."""
        self._client = httpx2.Client(
            base_url=files.server,
            verify=ssl.create_default_context(cafile=str(files.ca_file)),
            headers={"Authorization": f"Bearer {files.admin_token}"},
            timeout=60,
            trust_env=False,
        )

    @property
    def audit_log(self) -> Path:
        """The log of the requests of the users `controller` and `gateway`."""
        return self.files.directory / "audit.log"

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Sends a request as the administrator and returns the JSON of the response."""
        response = self._client.request(method, path, json=body, headers={"Content-Type": content_type})
        response.raise_for_status()
        return response.json()

    def is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Runs kubectl as the administrator and returns its output."""
        command = [program("kubectl"), f"--kubeconfig={self.files.kubeconfig}", f"--namespace={NAMESPACE}", *arguments]
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, text=True, check=True).stdout

    def kubeconfig(self, user: str) -> Path:
        """Writes the kubeconfig file of a user."""
        file = self.files.directory / f"kubeconfig-{user}"
        self.files.write_kubeconfig(file, self.files.token(user), NAMESPACE)
        return file

    def add_nodes(self, count: int) -> None:
        """Creates fake nodes and waits until they are ready."""
        nodes = [{"metadata": {"name": f"node-{number}"}} for number in range(count)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(partial(self.request, "POST", "/api/v1/nodes"), nodes))
        self.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=300s")


@contextmanager
def running_fake_cluster(directory: Path) -> Iterator[FakeCluster]:
    """Raises `ProgramMissingError` if the programs of Kubernetes are not built."""
    kwok = str(program("kwok"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = ControlPlaneFiles(directory, "127.0.0.1", port)
    files.write({"controller": "system:masters", "gateway": "system:masters"})
    (directory / "audit-policy.yaml").write_text(AUDIT_POLICY)
    audit = ("--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log", "--audit-log-maxsize=10000")
    with ExitStack() as cleanup:

        def start(command: list[str]) -> int:
            log = directory / f"{Path(command[0]).name}.log"
            # The kernel kills it if the benchmark dies.
            command = ["setpriv", "--pdeathsig=KILL", *command]
            return cleanup.enter_context(running_process(command, log, directory=directory)).pid

        start(files.etcd())
        cluster = FakeCluster(files, start(files.api_server(*audit)))
        _wait_until_ready(cluster)
        cluster.kubectl("apply", "--server-side", "-f", CRDS)
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        # Fake nodes send no heartbeats, which would add requests.
        start([*files.controller_manager(), *CLIENT_LIMITS, "--node-monitor-grace-period=24h"])
        start([*files.scheduler(), *CLIENT_LIMITS])
        options = ("--manage-all-nodes", f"--config={STAGES}", f"--cidr={POD_NETWORK}")
        start([kwok, f"--kubeconfig={files.kubeconfig}", *options])
        cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        yield cluster


def _wait_until_ready(cluster: FakeCluster) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not cluster.is_ready():
        if time.monotonic() > deadline:
            log = (cluster.files.directory / "kube-apiserver.log").read_text()
            raise RuntimeError(f"the API server did not get ready in {START_SECONDS:g} s: {log[-2000:]}")
        time.sleep(0.1)
