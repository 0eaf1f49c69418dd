"""Events about apps in a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import EVENTS, JsonObject
from cornserve.kubernetes_resources import events
from cornserve.kubernetes_resources.events import EventRecorder
from tests.kubernetes.api_server import ApiServer

UID = "00000000-0000-0000-0000-000000000001"


async def events_of(client: KubeClient, uid: str) -> list[JsonObject]:
    return (await client.list(EVENTS, field_selector=f"involvedObject.uid={uid}")).items


async def test_equal_events_are_counted_and_listed_by_kubectl(
    api_server: ApiServer, kube_namespace: str, kubeconfig: Path
) -> None:
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
        for _ in range(2):  # another controller continues the count
            recorder = EventRecorder(client, "cornserve-controller")
            for _ in range(2):
                await recorder.record("a", UID, "Warning", "ImportFailed", "app.py:1: SyntaxError")
        found = await events_of(client, UID)

    assert [(event["reason"], event["count"]) for event in found] == [("ImportFailed", 4)]
    printed = api_server.kubectl("events", "-n", kube_namespace, "--for", "app/a")
    assert "(x4 over" in printed
    assert "app.py:1: SyntaxError" in printed


async def test_the_rate_of_events_about_an_app_is_limited(kubeconfig: Path) -> None:
    now = 0.0
    async with KubeClient.connect(kubeconfig=kubeconfig, field_manager="test") as client:
        recorder = EventRecorder(client, "cornserve-controller", clock=lambda: now)
        for number in range(events.BURST + 5):
            await recorder.record("a", UID, "Normal", "Scheduled", f"pod {number}")
        assert len(await events_of(client, UID)) == events.BURST

        now = events.REFILL_SECONDS
        await recorder.record("a", UID, "Normal", "Scheduled", "later")
        assert len(await events_of(client, UID)) == events.BURST + 1


async def test_an_event_that_cannot_be_written_is_logged(kubeconfig: Path, caplog: Any) -> None:
    async with KubeClient.connect(kubeconfig=kubeconfig, namespace="missing", field_manager="test") as client:
        await EventRecorder(client, "cornserve-controller").record("a", UID, "Normal", "Scheduled", "pod")

    assert "cannot write the event Scheduled about app a" in caplog.text
