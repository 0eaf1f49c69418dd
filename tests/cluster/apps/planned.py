"""The planned app of docs/reference/app-resource.md, and what the cluster shows of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

import httpx2 as httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cornserve.control.launcher.kubernetes.names import CELL_LABEL
from tests.cluster.installation import Installation
from tests.integration.docs.pages import blocks

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
