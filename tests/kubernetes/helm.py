"""Runs Helm with the charts of the repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.cluster.programs import ROOT, program

CHART: Final = ROOT / "helm" / "cornserve"


class HelmError(Exception):
    """Contains what Helm wrote to stderr."""


def run_helm(*arguments: str | Path) -> str:
    """Returns the output of Helm. Raises `HelmError`."""
    command = [program("helm"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise HelmError(result.stderr)
    return result.stdout


def render(*options: str | Path, release: str = "cornserve", namespace: str = "team-a") -> str:
    """Returns the manifests of the chart, without a cluster."""
    return run_helm("template", release, CHART, "--namespace", namespace, *options)


class Manifests:
    """Objects by kind and name."""

    def __init__(self, text: str) -> None:
        self._objects: Final[list[dict[str, Any]]] = [item for item in yaml.safe_load_all(text) if item]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._objects)

    def __contains__(self, kind: object) -> bool:
        return any(item["kind"] == kind for item in self._objects)

    def get(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """Returns the only object of a kind, or the one with the name."""
        found = [item for item in self._objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
        assert len(found) == 1, f"{len(found)} objects of kind {kind} with the name {name}"
        return found[0]

    def pod(self, deployment: str) -> dict[str, Any]:
        """Returns the pod template of a Deployment."""
        template: dict[str, Any] = self.get("Deployment", deployment)["spec"]["template"]
        return template


class HelmRelease:
    """A release of the chart in a namespace of a cluster."""

    def __init__(self, name: str, kubeconfig: Path, namespace: str) -> None:
        self.name: Final = name
        self._connection: Final = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}")

    def install(self, *options: str | Path) -> Manifests:
        return self._change("install", *options)

    def upgrade(self, *options: str | Path) -> Manifests:
        return self._change("upgrade", *options)

    def uninstall(self) -> None:
        run_helm("uninstall", self.name, *self._connection)

    def _change(self, verb: str, *options: str | Path) -> Manifests:
        output = run_helm(verb, self.name, CHART, *self._connection, "--output=json", *options)
        return Manifests(json.loads(output)["manifest"])
