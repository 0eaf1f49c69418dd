"""The policy `modelsOnly` refuses apps with source, pod templates or code of models in its namespace."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.helm import HelmRelease
from tests.waiting import until


def app(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "metadata": {"name": "a"}, "spec": spec}


SOURCE = app({"source": {"inline": "task = None"}})
MODEL = app({"model": {"id": "organization/model"}, "executors": [{"name": "llm", "options": {"seed": 1}}]})
TEMPLATE = app({"model": {"id": "organization/model"}, "executors": [{"name": "llm", "podTemplate": {"spec": {}}}]})

REMOTE_CODE = app({"model": {"id": "a/b"}, "executors": [{"name": "*", "options": {"trust_remote_code": True}}]})


def refusal(server: ApiServer, namespace: str, body: dict[str, Any]) -> str:
    """Returns why the API server refuses an app; empty if it accepts it. Changes nothing."""
    try:
        server.request("POST", f"/apis/cornserve.ai/v1alpha1/namespaces/{namespace}/apps?dryRun=All", body)
    except httpx2.HTTPStatusError as error:
        return str(error.response.json()["message"])
    return ""


async def test_apps_with_code_are_refused_where_the_policy_is_on(
    api_server: ApiServer, kube_namespace: str, release: HelmRelease, request: pytest.FixtureRequest
) -> None:
    other = api_server.create_namespace()
    assert refusal(api_server, kube_namespace, SOURCE) == ""

    release.install("--set", "modelsOnly.enabled=true")
    request.addfinalizer(release.uninstall)
    await until(lambda: refusal(api_server, kube_namespace, SOURCE) != "")

    assert "spec.source: this namespace admits models only" in refusal(api_server, kube_namespace, SOURCE)
    assert "spec.executors: this namespace admits no podTemplate" in refusal(api_server, kube_namespace, TEMPLATE)
    assert "spec.executors: this namespace admits no code" in refusal(api_server, kube_namespace, REMOTE_CODE)
    assert refusal(api_server, kube_namespace, MODEL) == ""
    assert refusal(api_server, other, SOURCE) == ""
