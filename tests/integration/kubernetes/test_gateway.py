"""A gateway whose apps are resources of a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app_host.fork_client import ForkServer
from cornserve.gateway.api import create_gateway
from cornserve.gateway.backend import kubernetes_backend
from cornserve.gateway.http.request_id import REQUEST_ID, RequestId
from tests.credentials import CREDENTIALS
from tests.kubernetes.api_server import ApiServer
from tests.unit.gateway.sources import ECHO


async def test_settings_of_pods_are_deployed(
    api_server: ApiServer, kube_namespace: str, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    executors = [{"name": "*", "pod_template": {"metadata": {"labels": {"team": "a"}}}}]
    fork_server = ForkServer()

    async with kubernetes_backend("test") as backend:
        gateway = create_gateway(backend, credentials=CREDENTIALS, fork_server=fork_server)

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            await gateway({**scope, "state": {REQUEST_ID: RequestId.of([])}}, receive, send)

        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            response = await client.put(
                "/admin/v1/apps/echo", json={"source": {"inline": ECHO}, "executors": executors}
            )
    await fork_server.close()

    assert response.status_code == 200, response.text
    path = f"/apis/cornserve.ai/v1alpha1/namespaces/{kube_namespace}/apps/echo"
    overrides = api_server.request("GET", path)["spec"]["executors"]
    assert overrides == [{"name": "*", "podTemplate": {"metadata": {"labels": {"team": "a"}}}}]
