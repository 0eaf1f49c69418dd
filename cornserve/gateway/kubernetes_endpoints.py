"""The endpoints of executors on Kubernetes: the EndpointSlices of their Services."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator

from cornserve.control.launcher.kubernetes.names import EXECUTOR_LABEL, selector
from cornserve.gateway.app_registry import Endpoints
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import ENDPOINT_SLICES, JsonObject


class EndpointSliceSource:
    """Reports the ready pods of each executor group, which Kubernetes observes without the controller."""

    def __init__(self, client: KubeClient, instance: str) -> None:
        self._slices = Informer(client, ENDPOINT_SLICES, label_selector=selector(instance))

    async def watch(self) -> AsyncGenerator[Endpoints, None]:
        following = asyncio.create_task(self._slices.run())
        try:
            await self._slices.synced.wait()
            while True:
                change = self._slices.next_change()
                yield _endpoints(list(self._slices.objects.values()))
                await change.wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _endpoints(slices: list[JsonObject]) -> Endpoints:
    groups: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for each in slices:
        group = groups[each["metadata"]["labels"][EXECUTOR_LABEL]]
        ports = [port["port"] for port in each.get("ports") or ()]
        for endpoint in each.get("endpoints") or ():
            if ports and endpoint.get("conditions", {}).get("ready"):
                address = endpoint["addresses"][0]
                host = f"[{address}]" if ":" in address else address
                group[f"{host}:{ports[0]}"] = endpoint.get("targetRef", {}).get("name", address)
    return dict(groups)
