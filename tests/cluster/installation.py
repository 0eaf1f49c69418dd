"""A release of the chart on a cluster, and what users do with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from typer.testing import CliRunner, Result

from cornserve.cli.commands import app as cornserve_program
from scripts.cluster.programs import program
from tests.cluster.conftest import KubernetesCluster
from tests.kubernetes.api_server import CRDS
from tests.kubernetes.helm import CHART, run_helm

RELEASE: Final = "cornserve"

Values = Mapping[str, Any]

_SMALL: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}}
"""Requests of pods, so that many fit on the nodes of a small machine."""


def values(
    cluster: KubernetesCluster,
    tag: str,
    *,
    control: str = "cornserve-echo",
    executors: str = "cornserve-echo",
    drain_seconds: int = 10,
) -> Values:
    """Returns values for images. The executors share the memory of a node if all nodes have the directory."""
    shared = {"type": "persistentVolumeClaim", "path": "/dev/shm/cornserve"} if cluster.is_local else {"type": "none"}
    return {
        "images": {
            "tag": tag,
            "control": {"repository": control},
            "executors": {"cpu": {"repository": executors}},
        },
        "gateway": {"resources": _SMALL, "drainSeconds": 10, "preStopSeconds": 1},
        "controller": {"resources": _SMALL, "replicas": 1},
        "executors": {
            "cpu": {"resources": {**_SMALL, "limits": {}}},
            "sharedMemory": shared,
            "drainSeconds": drain_seconds,
        },
        "networkPolicies": {"enabled": False},
    }


class Installation:
    """A release in a namespace."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster: Final = cluster
        self.namespace: Final = namespace

    def helm(self, verb: str, *arguments: str | Path) -> str:
        files = [f"--kubeconfig={self.cluster.kubeconfig}"] if self.cluster.kubeconfig else []
        connection = [*files, f"--kube-context={self.cluster.context}", f"--namespace={self.namespace}"]
        return run_helm(verb, RELEASE, *arguments, *connection)

    def install(self, given: Values, directory: Path) -> None:
        """Installs the CRDs and the chart, and waits until the pods are ready."""
        file = directory / f"{self.namespace}.yaml"
        file.write_text(yaml.safe_dump(dict(given)))
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
        self.helm("install", CHART, "--values", file, "--wait", "--timeout=180s")

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def get(self, *arguments: str) -> Any:
        return self.cluster.get(f"--namespace={self.namespace}", *arguments)

    def apply_app(self, name: str, spec: Mapping[str, Any]) -> None:
        """Applies an App, as `kubectl apply --server-side` does for a manifest."""
        manifest = {"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(manifest))

    def wait_until_ready(self, app: str, *, seconds: int = 180) -> None:
        self.wait_for(app, "condition=Ready", seconds=seconds)

    def wait_for(self, app: str, condition: str, *, seconds: int = 180) -> None:
        self.kubectl("wait", f"--for={condition}", f"app/{app}", f"--timeout={seconds}s")

    def condition(self, app: str, type: str) -> dict[str, Any]:
        """Returns a condition of an app."""
        conditions = self.get("app", app)["status"]["conditions"]
        found: dict[str, Any] = next(condition for condition in conditions if condition["type"] == type)
        return found

    def cornserve(self, *arguments: str) -> Result:
        """Runs the command line against the installation."""
        environment = dict(os.environ)
        if self.cluster.kubeconfig is not None:
            environment["KUBECONFIG"] = str(self.cluster.kubeconfig)
        options = ["--context", self.cluster.context, "--namespace", self.namespace]
        return CliRunner(env=environment).invoke(cornserve_program, [*options, *arguments])

    def secret(self, name: str, key: str) -> str:
        return b64decode(self.get("secret", name)["data"][key]).decode()

    @property
    def api_key(self) -> str:
        return self.secret("cornserve-access", "api-key")

    @contextmanager
    def forwarded(self, target: str = "service/cornserve") -> Iterator[str]:
        """Forwards a local port to a gateway or its pod; returns the URL."""
        files = [f"--kubeconfig={self.cluster.kubeconfig}"] if self.cluster.kubeconfig else []
        command = [str(program("kubectl")), *files, f"--context={self.cluster.context}", "port-forward"]
        command += [f"--namespace={self.namespace}", target, ":http"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                yield f"http://{line.split()[2]}"
            finally:
                process.terminate()


@contextmanager
def installation(cluster: KubernetesCluster, given: Values, directory: Path) -> Iterator[Installation]:
    """Installs the chart in a new namespace with Pod Security `restricted`, which is deleted at the end."""
    name = f"cornserve-test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    installed = Installation(cluster, name)
    try:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        installed.install(given, directory)
        yield installed
    finally:
        installed.helm("uninstall", "--ignore-not-found")
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def on_node(executor: str, name: str) -> dict[str, Any]:
    """Returns the settings of an executor whose pods run on a node."""
    return {"name": executor, "podTemplate": {"spec": {"nodeSelector": {"kubernetes.io/hostname": name}}}}


def versions(installed: Installation, app: str, selector: str) -> dict[str, str]:
    """Returns the resource versions of an app and of all objects that belong to it."""
    owned = "deployments,services,endpointslices,poddisruptionbudgets,replicasets,pods"
    objects = [*installed.get(owned, f"--selector={selector}")["items"]]
    objects += [installed.get("app", app), installed.get("approute", app)]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in objects}


def pod_of(installed: Installation, app: str, executor: str) -> Any:
    """Returns the only pod of an executor of an app."""
    (found,) = pods_of(installed, app, executor)
    return found


def pods_of(installed: Installation, app: str, executor: str) -> list[Any]:
    """Returns the pods of an executor of an app."""
    executors = installed.get("app", app)["status"]["executors"]
    (key,) = [section["key"] for section in executors if section["name"] == executor]
    return list(installed.get("pods", f"--selector=cornserve.ai/executor={key}")["items"])


def executor_metrics(installed: Installation, pod_name: str) -> str:
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9002/metrics').read().decode())"
    return installed.kubectl("exec", pod_name, "--container=executor", "--", "python", "-c", script)


def received_bytes(installed: Installation, pod_name: str) -> dict[str, float]:
    """Returns the bytes of received tensors by kind of transfer."""
    metrics = executor_metrics(installed, pod_name)
    found = re.findall(r'^cornserve_transport_received_bytes_total\{kind="(\w+)"\} (\S+)$', metrics, re.MULTILINE)
    return {kind: float(nbytes) for kind, nbytes in found}
