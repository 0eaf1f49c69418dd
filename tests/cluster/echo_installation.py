"""An installation of the chart with the image of examples/echo."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cornserve.kubernetes.resources import JsonObject
from scripts.cluster.machines import existing_nodes
from tests.chaos.apps import echo, requests, twice
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.retrying_load import RetryingClients
from tests.kubernetes.helm import CHART, run_helm

API_KEY: Final = "key-of-the-chaos-tests"
RELEASE: Final = "chaos"
SMALL: Final[JsonObject] = {"requests": {"cpu": "10m", "memory": "32Mi"}}

CRDS: Final = CHART.parent / "cornserve-crds" / "templates"


def chart_values(**values: Any) -> JsonObject:
    image = {"repository": "cornserve-echo"}
    return {
        "images": {"tag": "dev", "pullPolicy": "Never", "control": image, "executors": {"cpu": image}},
        "access": {"apiKeys": [API_KEY]},
        "gateway": {"drainSeconds": 30, "resources": SMALL, "service": {"type": "NodePort"}},
        "controller": {"resources": SMALL},
        "executors": {"drainSeconds": 30, "cpu": {"resources": SMALL}},
        **values,
    }


class EchoInstallation:
    """Two gateways, two controllers, and the apps `echo` and `twice`, which share their executors."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, directory: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._values_file = directory / "values.json"

    def kubectl(self, *arguments: str) -> str:
        return self._cluster.kubectl(f"--namespace={self._namespace}", *arguments)

    def helm(self, *arguments: str) -> str:
        files = [f"--kubeconfig={self._cluster.kubeconfig}"] if self._cluster.kubeconfig else []
        return run_helm(*arguments, *files, f"--kube-context={self._cluster.context}", f"--namespace={self._namespace}")

    def install(self, values_text: str) -> None:
        self._values_file.write_text(values_text)
        self._cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
        self.helm("install", RELEASE, str(CHART), f"--values={self._values_file}", "--wait", "--timeout=120s")

    def deploy(self, prefix: str, *, replicas: int = 2, **spec: Any) -> None:
        """Applies both apps with a prefix of their responses, and waits until they serve."""
        for name, source in (("echo", echo(prefix)), ("twice", twice(prefix))):
            self.apply(name, source=source, replicas=replicas, **spec)
        for name in ("echo", "twice"):
            self.kubectl("wait", "--for=condition=Ready", f"app/{name}", "--timeout=90s")
            self.wait_for_replicas(name, replicas)

    def apply(self, name: str, *, source: str, **spec: Any) -> None:
        app = {"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "metadata": {"name": name}}
        self._cluster.apply(self._namespace, {**app, "spec": {"source": {"inline": source}, **spec}})

    def wait_for_replicas(self, name: str, count: int) -> None:
        self.kubectl("wait", f"--for=jsonpath={{.status.readyReplicas}}={count}", f"app/{name}", "--timeout=90s")

    def executor_objects(self) -> set[str]:
        """The kinds and names of all objects of executor groups, without the pods."""
        label = "--selector=app.kubernetes.io/component=executor"
        kinds = "deployments,services,poddisruptionbudgets"
        return set(self.kubectl("get", kinds, label, "--output=name").split())

    def clients(self, *prefixes: str) -> RetryingClients:
        """Returns clients of both nodes that accept responses with these prefixes."""
        service = self._cluster.get("service", f"--namespace={self._namespace}", f"{RELEASE}-cornserve")
        port = service["spec"]["ports"][0]["nodePort"]
        urls = [f"http://{node.address}:{port}" for node in existing_nodes()]
        return RetryingClients(urls, API_KEY, requests(*prefixes, seconds=0.2), clients=4)
