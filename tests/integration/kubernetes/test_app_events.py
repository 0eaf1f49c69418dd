"""The Events of an app, from a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cornserve.app.record import AppStatus, GroupStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import Record
from cornserve.gateway.kubernetes_events import KubernetesEvents
from cornserve.kubernetes.client import KubeClient
from tests.kubernetes.api_server import ApiServer


def create_event(api_server: ApiServer, namespace: str, kind: str, name: str, **fields: Any) -> None:
    involved = {"kind": kind, "name": name, "namespace": namespace, "uid": fields.pop("uid", "x")}
    event = {"metadata": {"generateName": f"{name}."}, "involvedObject": involved, "type": "Normal", **fields}
    api_server.request("POST", f"/api/v1/namespaces/{namespace}/events", event)


async def test_the_events_of_an_app_are_those_of_its_objects_in_the_order_of_time(
    api_server: ApiServer, kube_namespace: str, kubeconfig: Path
) -> None:
    def create(kind: str, name: str, **fields: Any) -> None:
        create_event(api_server, kube_namespace, kind, name, **fields)

    early, late = "2026-11-22T12:00:00Z", "2026-11-22T12:00:05Z"
    create("Pod", "llm-1-x", reason="BackOff", type="Warning", message="restarting\n", lastTimestamp=late, count=3)
    create("App", "a", uid="uid-of-a", reason="Accepted", message="loaded", lastTimestamp=early)
    create("Pod", "llm-1-x", reason="Pulled", message="", lastTimestamp="2026-11-22T12:00:01Z")
    create("Pod", "llm-1-x", reason="Started", message="", lastTimestamp="2026-11-22T12:00:01Z")
    create("App", "a", uid="uid-of-an-earlier-a", reason="Deleted", lastTimestamp=early)
    create("Pod", "llm-12-x", reason="Other", lastTimestamp=early)
    create("Node", "llm-1", reason="Other", lastTimestamp=early)
    status = AppStatus(groups=[GroupStatus(key="llm-1", wanted=1, replicas=[])])
    record = Record(
        name="a", uid="uid-of-a", generation=1, version=1, spec=AppSpec(model=AppModel(id="m/m")), status=status
    )

    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
        events = await KubernetesEvents(client)(record)

    found = [(event.type, event.reason, event.object, event.message, event.count) for event in events]
    assert found == [
        ("Normal", "Accepted", "App/a", "loaded", 1),
        ("Normal", "Pulled", "Pod/llm-1-x", "", 1),
        ("Normal", "Started", "Pod/llm-1-x", "", 1),
        ("Warning", "BackOff", "Pod/llm-1-x", "restarting", 3),
    ]
    assert events[-1].time is not None
    assert events[-1].time.isoformat() == "2026-11-22T12:00:05+00:00"
