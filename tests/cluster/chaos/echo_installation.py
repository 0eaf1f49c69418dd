"""An installation of the chart with the image of examples/echo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cornserve.kubernetes.pods import find_condition
from cornserve.kubernetes.resources import JsonObject
from scripts.cluster.machines import existing_nodes
from tests.chaos.apps import echo, twice
from tests.chaos.form import by_form
from tests.chaos.load import ChaosRequest
from tests.cluster.chaos.retrying_load import RetryingClients
from tests.cluster.conftest import KubernetesCluster
from tests.kubernetes.api_server import CRDS
from tests.kubernetes.helm import CHART, run_helm

API_KEY: Final = "key-of-the-chaos-tests"
RELEASE: Final = "chaos"
SMALL: Final[JsonObject] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
REPLICAS: Final = 2
"""Replicas of gateways, controllers and executors."""
CLIENTS: Final = by_form(short=4, full=8)
"""Clients that send requests at the same time."""


def chart_values(tag: str, shared_memory: Path) -> JsonObject:
    image = {"repository": "cornserve-echo"}
    return {
        "images": {"tag": tag, "pullPolicy": "Never", "control": image, "executors": {"cpu": image}},
        "access": {"apiKeys": [API_KEY]},
        "limits": {"slab-mib": 64},
        "gateway": {"drainSeconds": 30, "resources": SMALL, "service": {"type": "NodePort"}},
        "controller": {"resources": SMALL},
        "executors": {
            "drainSeconds": 30,
            "cpu": {"resources": {**SMALL, "limits": {}}},
            "sharedMemory": {"type": "persistentVolumeClaim", "path": str(shared_memory)},
        },
    }


@dataclass(frozen=True)
class InstallationState:
    """The objects of an installation."""

    objects: Counter[str]
    """The numbers of objects of executor groups by kind, without the pods."""
    pods: Counter[tuple[str, str]]
    """The numbers of pods by component and state."""

    @property
    def is_steady(self) -> bool:
        """Whether no pod starts or ends."""
        return all(state == "Ready" for _, state in self.pods)


class EchoInstallation:
    """Two gateways, two controllers, and the apps `echo` and `twice`, which share their executors."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, directory: Path, values: JsonObject) -> None:
        self.cluster: Final = cluster
        self.namespace: Final = namespace
        self.values: Final = values
        self._directory = directory

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments)

    def get(self, *arguments: str) -> Any:
        return self.cluster.get(f"--namespace={self.namespace}", *arguments)

    def helm(self, *arguments: str) -> str:
        files = [f"--kubeconfig={self.cluster.kubeconfig}"] if self.cluster.kubeconfig else []
        return run_helm(*arguments, *files, f"--kube-context={self.cluster.context}", f"--namespace={self.namespace}")

    def cornserve(self, *arguments: str) -> str:
        """Runs the command line and returns its output."""
        program = str(Path(sys.executable).with_name("cornserve"))
        command = [program, "--context", self.cluster.context, "--namespace", self.namespace, *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"cornserve {' '.join(arguments)}: {result.stderr}{result.stdout}"
        return result.stdout

    def install(self) -> None:
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
        self._change("install", self.values)

    def upgrade(self, values: JsonObject) -> None:
        self._change("upgrade", values)

    def _change(self, verb: str, values: JsonObject) -> None:
        file = self._directory / "values.json"
        file.write_text(json.dumps(values))
        self.helm(verb, RELEASE, str(CHART), f"--values={file}", "--wait", "--timeout=150s")

    def roll_back(self) -> None:
        self.helm("rollback", RELEASE, "--wait", "--timeout=150s")

    def deploy(self, prefix: str, *, replicas: int = REPLICAS, **spec: Any) -> None:
        """Applies both apps with a prefix of their responses, and waits until they serve."""
        for name, source in sources(prefix).items():
            self.apply(name, source=source, replicas=replicas, **spec)
        for name in ("echo", "twice"):
            self.wait_for_replicas(name, replicas)

    def apply(self, name: str, *, source: str, **spec: Any) -> None:
        app = {"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "metadata": {"name": name}}
        self.cluster.apply(self.namespace, {**app, "spec": {"source": {"inline": source}, **spec}})

    def write_source(self, name: str, source: str) -> str:
        """Writes a file for the command line and returns its path."""
        file = self._directory / f"{name}.py"
        file.write_text(source)
        return str(file)

    def wait_for_replicas(self, name: str, count: int) -> None:
        self.kubectl("wait", "--for=condition=Ready", f"app/{name}", "--timeout=90s")
        self.kubectl("wait", f"--for=jsonpath={{.status.readyReplicas}}={count}", f"app/{name}", "--timeout=90s")

    def pods(self, component: str) -> list[JsonObject]:
        """Returns the pods of a component that have not ended and do not end."""
        found = self.get("pods", f"--selector=app.kubernetes.io/component={component}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"] and not has_ended(pod)]

    def leader(self) -> str:
        """Returns the name of the controller pod that leads."""
        holder: str = self.get("lease", f"{RELEASE}-controller")["spec"]["holderIdentity"]
        return holder.rpartition("_")[0]

    def state(self) -> InstallationState:
        items = self.get("pods,deployments,services,poddisruptionbudgets")["items"]
        # The Job that fills Secrets after an upgrade ends by itself.
        running = [item for item in items if item["kind"] == "Pod" and not has_ended(item)]
        pods = [pod for pod in running if component_of(pod) != "secrets"]
        groups = [item for item in items if item["kind"] != "Pod" and component_of(item) == "executor"]
        return InstallationState(
            Counter(item["kind"] for item in groups),
            Counter((component_of(pod), pod_state(pod)) for pod in pods),
        )

    def is_settled(self) -> bool:
        """Whether exactly the desired pods exist, and all of them are ready."""
        components = ("gateway", "controller", "executor")
        return self.state().pods == Counter({(component, "Ready"): REPLICAS for component in components})

    def images(self) -> set[str]:
        """Returns the images of all pods that run."""
        pods = [pod for pod in self.get("pods")["items"] if not has_ended(pod)]
        return {container["image"] for pod in pods for container in pod["spec"]["containers"]}

    def clients(self, make: Callable[[int], ChaosRequest]) -> RetryingClients:
        """Returns clients of both nodes."""
        port = self.get("service", f"{RELEASE}-cornserve")["spec"]["ports"][0]["nodePort"]
        urls = [f"http://{node.address}:{port}" for node in existing_nodes()]
        return RetryingClients(urls, API_KEY, make, clients=CLIENTS)


def sources(prefix: str) -> dict[str, str]:
    """Returns the sources of both apps by name."""
    return {"echo": echo(prefix), "twice": twice(prefix)}


def component_of(item: JsonObject) -> str:
    return str(item["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def has_ended(pod: JsonObject) -> bool:
    """Whether the containers of the pod are done, as those of a Job."""
    return bool(pod["status"]["phase"] == "Succeeded")


def pod_state(pod: JsonObject) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    is_ready = find_condition(pod, "Ready").get("status") == "True"
    return "Ready" if is_ready else str(pod["status"]["phase"])
