"""The planned app of docs/reference/app-resource.md, and what the cluster shows of it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httpx2 as httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cornserve.control.launcher.kubernetes.names import CELL_LABEL
from tests.chaos.load import ChaosRequest
from tests.cluster.chaos.retrying_load import RetryingClients
from tests.cluster.installation import Installation
from tests.integration.docs.pages import blocks
from tests.waiting import until

CLIENTS: Final = 4

PAGE: Final = "docs/reference/app-resource.md"


def planned(name: str, *counts: int) -> dict[str, Any]:
    """Returns the spec of the example as app `name`, with the number of cells of each size that run."""
    (code,) = (block.code for block in blocks(PAGE) if block.title == "planned.yaml")
    spec: dict[str, Any] = yaml.safe_load(code.replace("captions", name))["spec"]
    for cell, count in zip(spec["plan"]["cells"], counts, strict=True):
        cell["count"] = count
    return spec


def running_pods(installed: Installation, app: str) -> dict[str, list[Any]]:
    """Returns the pods of an app that do not end, by the label of their cell."""
    selector = installed.get("app", app)["status"]["selector"]
    cells: dict[str, list[Any]] = defaultdict(list)
    for pod in installed.get("pods", f"--selector={selector}")["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            cells[pod["metadata"]["labels"].get(CELL_LABEL, "")].append(pod)
    return cells


def running_cells(installed: Installation, app: str) -> list[dict[str, Any]]:
    """Returns the running cells of the plan in the spec of an app, each as often as it runs."""
    cells = installed.get("app", app)["spec"]["plan"]["cells"]
    return [cell for cell in cells for _ in range(cell.get("count", 0))]


def uids(cells: dict[str, list[Any]]) -> dict[str, frozenset[str]]:
    """Returns the uids of the pods of each cell."""
    return {cell: frozenset(pod["metadata"]["uid"] for pod in pods) for cell, pods in cells.items()}


async def routed(urls: list[str], api_key: str, app: str) -> Counter[tuple[str, str, str]]:
    """Returns the requests by type, cell and path that the gateways at `urls` have counted."""
    counts: Counter[tuple[str, str, str]] = Counter()
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {api_key}"}) as client:
        for url in urls:
            response = await client.get(f"{url}/metrics")
            for family in text_string_to_metric_families(response.text):
                for sample in family.samples:
                    if sample.name == "cornserve_gateway_planned_path_requests_total" and sample.labels["app"] == app:
                        way = sample.labels["type"], sample.labels["cell"], sample.labels["path"]
                        counts[way] += int(sample.value)
    return counts


def request(app: str, number: int) -> ChaosRequest:
    """Returns a request of the type `text` or, if the number is odd, `images`."""
    text = f"{app} {number}"
    return ChaosRequest(app, {"text": text, "images": number % 2}, stream=False, expected=(text,))


class PlannedApp:
    """A planned app under traffic.

    Args:
        requests: makes a request to the app, given its name and the number of the request.
        clients: the number of clients.
        rate: the requests per second. By default, each client sends one request after the other.
    """

    def __init__(
        self,
        installed: Installation,
        urls: list[str],
        name: str,
        requests: Callable[[str, int], ChaosRequest] = request,
        clients: int = CLIENTS,
        rate: float | None = None,
    ) -> None:
        self._installed, self._name = installed, name
        self.clients = RetryingClients(urls, installed.api_key, partial(requests, name), clients=clients, rate=rate)

    async def has_cells(self, *sizes: int) -> dict[str, frozenset[str]]:
        """Waits until exactly cells with these numbers of pods run. Returns the uids of their pods."""
        await until(lambda: asyncio.to_thread(self._is_settled, [*sizes]), seconds=120)
        await self.clients.wait_for_requests(20)
        return uids(await asyncio.to_thread(running_pods, self._installed, self._name))

    async def runs(self, is_wanted: Callable[[list[dict[str, Any]]], bool]) -> dict[str, frozenset[str]]:
        """Waits until the running cells of the plan are as wanted, and run. Returns the uids of their pods."""

        def is_settled() -> bool:
            cells = running_cells(self._installed, self._name)
            return is_wanted(cells) and self._is_settled(sorted(sum(cell["replicas"].values()) for cell in cells))

        await until(lambda: asyncio.to_thread(is_settled), seconds=120, interval=0.5)
        await self.clients.wait_for_requests(20)
        return uids(await asyncio.to_thread(running_pods, self._installed, self._name))

    def _is_settled(self, sizes: list[int]) -> bool:
        app = self._installed.get("app", self._name)
        found = {each["type"]: each for each in app["status"]["conditions"]}
        status = app["status"]
        return (
            found["Ready"]["observedGeneration"] == app["metadata"]["generation"]
            and (found["Ready"]["status"], found["Progressing"]["status"]) == ("True", "False")
            and (status.get("cells", len(sizes)), status["readyReplicas"], status["desiredReplicas"])
            == (len(sizes), sum(sizes), sum(sizes))
            and sorted(len(pods) for pods in running_pods(self._installed, self._name).values()) == sizes
        )

    def assert_no_request_failed(self) -> None:
        repeated = self.clients.repeated()
        assert repeated == [], f"{len(repeated)} requests, such as {repeated[:3]}"
