"""Real Kubernetes API servers (etcd and kube-apiserver, no nodes) on loopback ports.

A package of tests has one as the fixture `api_server` (3 s, 400 MB), which ends with its last test: an idle one takes
7 % of a core. Each test has its own namespace.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from scripts.cluster.control_plane import ControlPlaneFiles
from scripts.cluster.programs import ROOT, ProgramMissingError, go_is_installed, program
from tests.waiting import wait_until

CRDS: Final = ROOT / "helm" / "cornserve-crds" / "templates"

_POD_GROUPS: Final = "--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"


class ApiServer:
    """A running API server, with the administrator's permissions."""

    def __init__(self, files: ControlPlaneFiles) -> None:
        self.files: Final = files
        self.url: Final = files.server
        self._client: Final = httpx2.Client(
            base_url=files.server,
            verify=ssl.create_default_context(cafile=str(files.ca_file)),
            headers={"Authorization": f"Bearer {files.admin_token}"},
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    def is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").status_code == 200
        except httpx2.TransportError:
            return False

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request and returns the JSON of the response. Raises `httpx2.HTTPStatusError`."""
        response = self._client.request(method, path, json=body)
        response.raise_for_status()
        return response.json()

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Runs kubectl as the administrator and returns its output."""
        command = [program("kubectl"), f"--kubeconfig={self.files.kubeconfig}", *arguments]
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {result.stderr}"
        return result.stdout

    def create_namespace(self, **labels: str) -> str:
        """Creates a namespace with a random name and, as the controller manager would, its `default` ServiceAccount."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        account = {"metadata": {"name": "default"}}
        response = self._client.post(f"/api/v1/namespaces/{name}/serviceaccounts", json=account)
        assert response.status_code in (201, 409), response.text
        return name

    def service_account_token(self, namespace: str, name: str) -> str:
        """Returns a token of an existing ServiceAccount. It is valid for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        token: str = self.request("POST", path, {"spec": {}})["status"]["token"]
        return token

    def apply_crds(self) -> None:
        """Installs the CRDs of the chart, if there are any, and waits until they are served."""
        if any(CRDS.glob("*.yaml")):
            self.kubectl("apply", "--server-side", "-f", CRDS)
            self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


@contextmanager
def api_server_process(directory: Path, *options: str) -> Iterator[ApiServer]:
    """Runs etcd and an API server with the CRDs of the chart and further options. Both end with this process."""
    require_programs()
    with socket.socket() as reserved:  # kube-apiserver binds the same port, and no other process can
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        files = ControlPlaneFiles(directory, "127.0.0.1", reserved.getsockname()[1])
        files.write()
        with running(files.etcd(), directory), running(files.api_server(*options), directory) as process:
            server = ApiServer(files)
            _wait_until_ready(server, process)
            server.apply_crds()
            yield server
            server.close()


@contextmanager
def running(command: list[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process that writes `NAME.log` in `directory`. The kernel kills it if this process dies."""
    with (directory / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *command], cwd=directory, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait_until_ready(server: ApiServer, process: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: server.is_ready() or process.poll() is not None)
    if process.poll() is not None:
        log = (server.files.directory / "kube-apiserver.log").read_text()
        pytest.fail(f"the API server ended at its start. The end of its log:\n{log[-2000:]}")


def require_programs() -> None:
    """Fails the test if the programs of Kubernetes are not built; skips it where Go is missing, except in CI."""
    try:
        program("kube-apiserver")
    except ProgramMissingError as error:
        if go_is_installed() or os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@contextmanager
def control_plane_processes(directory: Path) -> Iterator[ApiServer]:
    """Runs an API server that has PodGroups, a controller manager and a scheduler."""
    with (
        api_server_process(directory, _POD_GROUPS, "--runtime-config=scheduling.k8s.io/v1alpha2=true") as server,
        running([*server.files.controller_manager(), _POD_GROUPS], directory),
        running([*server.files.scheduler(), _POD_GROUPS], directory),
    ):
        yield server


@pytest.fixture
def kube_namespace(api_server: ApiServer) -> str:
    """The name of a new namespace with Pod Security `restricted`."""
    return api_server.create_namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})


@pytest.fixture
def kubeconfig(api_server: ApiServer, kube_namespace: str, tmp_path: Path) -> Path:
    """The administrator's kubeconfig file, with the namespace of the test."""
    file = tmp_path / "kubeconfig"
    api_server.files.write_kubeconfig(file, api_server.files.admin_token, kube_namespace)
    return file


@pytest.fixture
def service_account_kubeconfig(api_server: ApiServer, kube_namespace: str, tmp_path: Path) -> Callable[[str], Path]:
    """Writes the kubeconfig file of an existing ServiceAccount in the namespace of the test."""

    def write(name: str) -> Path:
        file = tmp_path / f"kubeconfig-{name}"
        token = api_server.service_account_token(kube_namespace, name)
        api_server.files.write_kubeconfig(file, token, kube_namespace)
        return file

    return write
