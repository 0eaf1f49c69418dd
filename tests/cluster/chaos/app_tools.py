"""An app that is changed by kubectl and by the command line."""

from __future__ import annotations

import asyncio
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.route_resource import decode_route
from tests.chaos.apps import echo, requests
from tests.chaos.load import ChaosRequest
from tests.cluster.chaos.echo_installation import EchoInstallation

PARITY: Final = "parity"


def parity_requests(number: int) -> ChaosRequest:
    return replace(requests("parity a ", "parity b ", seconds=0.2)(number | 1), app=PARITY)


class AppTool(ABC):
    """A tool with which users change the app `parity`."""

    name: ClassVar[str]

    def __init__(self, installation: EchoInstallation) -> None:
        self.installation = installation

    @abstractmethod
    def deploy(self, prefix: str) -> None:
        """Deploys a version with two replicas, whose responses begin with `prefix`."""

    @abstractmethod
    def scale(self, replicas: int) -> None: ...

    @abstractmethod
    def restart(self) -> None: ...

    async def changes(self) -> AsyncIterator[None]:
        """Changes the app, and yields when it serves as desired."""
        steps: list[tuple[Callable[[], None], int]] = [
            (partial(self.deploy, "b "), 2),
            (partial(self.scale, 3), 3),
            (self.restart, 3),
            (partial(self.scale, 2), 2),
            (partial(self.deploy, "a "), 2),
        ]
        for change, replicas in steps:
            await asyncio.to_thread(change)
            await asyncio.to_thread(self.installation.wait_for_replicas, PARITY, replicas)
            yield

    @staticmethod
    def source(prefix: str) -> str:
        return echo(f"{PARITY} {prefix}", name=PARITY)


class ByCommandLine(AppTool):
    name = "CLI"

    def deploy(self, prefix: str) -> None:
        file = self.installation.write_source("app", self.source(prefix))  # the name of sources that kubectl applies
        self.installation.cornserve("deploy", file, "--replicas", "2", "--timeout", "90")

    def scale(self, replicas: int) -> None:
        self.installation.cornserve("scale", PARITY, str(replicas))

    def restart(self) -> None:
        self.installation.cornserve("restart", PARITY, "--timeout", "90")


class ByKubectl(AppTool):
    name = "kubectl"

    def deploy(self, prefix: str) -> None:
        self.installation.apply(PARITY, source=self.source(prefix), replicas=2)

    def scale(self, replicas: int) -> None:
        self.installation.kubectl("scale", "app/parity", f"--replicas={replicas}")

    def restart(self) -> None:
        patch = {"spec": {"restart": {"id": uuid.uuid4().hex}}}
        self.installation.kubectl("patch", "app/parity", "--type=merge", f"--patch={json.dumps(patch)}")


def desired_state(installation: EchoInstallation) -> str:
    """Returns the specs of the app, its route and its executors, without uids, generations and ids of restarts."""
    app = installation.get("app", PARITY)["spec"]
    route = decode_route(installation.get("approute", PARITY)["spec"])
    executors = [installation.get("deployment", group)["spec"] for group in route.groups.values()]
    state = {
        "app": {**app, "restart": None},
        "route": [route.spec.model_dump(mode="json"), route.shares],
        "specs": [spec.model_dump(mode="json") for spec in route.specs.values()],
        "executors": [_without_labels(executor) for executor in executors],
    }
    return json.dumps(state, indent=1, sort_keys=True).replace(app.get("restart", {}).get("id", ""), "")


def _without_labels(deployment: JsonObject) -> JsonObject:
    """Returns a Deployment's spec without the labels that contain its name."""
    return {**deployment, "selector": None, "template": deployment["template"]["spec"]}
