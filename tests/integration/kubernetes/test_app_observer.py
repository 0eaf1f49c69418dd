"""Events about apps, and apps whose specs cannot be used, with a real API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cornserve.app.record import AppStatus, FailureReason, GroupStatus, Phase, ReplicaExit, ReplicaState, ReplicaStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.cluster_app_observer import ClusterAppObserver
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.job import TEMPORARY_PREFIX
from cornserve.control.store.base import APPS, AppRecord, UnreadableRecord
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes import resources
from cornserve.kubernetes.client import KubeClient

IMAGE = {"image": "example"}
SETTINGS = ClusterSettings.model_validate(
    {"instance": "a", "controllerName": "a-controller", "secretName": "a", "cpu": IMAGE, "gpu": IMAGE}
)
GROUPS = [GroupStatus(key="llm-1", executor="llm", wanted=1, replicas=[])]
STARTING = AppStatus(phase=Phase.STARTING, generation=1, message="waiting for llm-1", groups=GROUPS)
SERVING = AppStatus(phase=Phase.SERVING, generation=1, serving_generation=1)
FAILED = AppStatus(
    phase=Phase.FAILED, generation=1, reason=FailureReason.EXECUTOR_FAILED, message="no room", logs=["out of memory"]
)


async def observe(client: KubeClient, *statuses: AppStatus) -> list[tuple[str, str, str]]:
    """Writes and reports the statuses one after the other. Returns type, reason and message of the Events."""
    store, observer = KubernetesStore(client, record_codecs()), ClusterAppObserver(client, "controller", SETTINGS)
    app: AppRecord = await store.create(APPS, "a", AppSpec(model=AppModel(id="a/b")))
    for status in statuses:
        before = app.status
        app = await store.update_status(APPS, "a", status, app.version)
        await observer.on_status(app, before)
    events = (await client.list(resources.EVENTS)).items
    return sorted((event["type"], event["reason"], event["message"]) for event in events)


async def test_the_steps_of_a_rollout_are_events(kube_client: KubeClient) -> None:
    events = await observe(kube_client, STARTING, STARTING.model_copy(update={"message": "90 %"}), SERVING)
    assert [(kind, reason) for kind, reason, _ in events] == [("Normal", "Complete"), ("Normal", "Starting")]


async def test_the_seconds_of_a_start_are_an_event_of_each_replica(kube_client: KubeClient) -> None:
    def status(phase: Phase, *states: ReplicaState) -> AppStatus:
        messages = {ReplicaState.STARTING: "loading", ReplicaState.READY: "loaded in 11 s (load 11 s)"}
        replicas = [
            ReplicaStatus(id=f"llm-1-{number}", state=state, message=messages[state])
            for number, state in enumerate(states)
        ]
        groups = [GroupStatus(key="llm-1", executor="llm", wanted=2, replicas=replicas)]
        return AppStatus(phase=phase, generation=1, groups=groups)

    starting, ready = ReplicaState.STARTING, ReplicaState.READY
    events = await observe(
        kube_client,
        status(Phase.STARTING, starting, starting),
        status(Phase.STARTING, ready, starting),
        status(Phase.SERVING, ready, ready),
    )
    assert [event for event in events if event[1] == "Loaded"] == [
        ("Normal", "Loaded", f"llm-1-{number} loaded in 11 s (load 11 s)") for number in range(2)
    ]
    described = await kube_client.list(resources.EVENTS)
    assert [event["count"] for event in described.items if event["reason"] == "Loaded"] == [1, 1]


async def test_a_failure_is_a_warning_with_the_last_log_lines(kube_client: KubeClient) -> None:
    events = await observe(kube_client, STARTING, FAILED)
    assert ("Warning", "ExecutorFailed", "no room\nout of memory") in events


@pytest.mark.parametrize("reason", [FailureReason.EXECUTOR_FAILED, FailureReason.IMPORT_FAILED])
async def test_a_final_failure_is_one_event(kube_client: KubeClient, reason: FailureReason) -> None:
    failed = FAILED.model_copy(update={"reason": reason})
    again = failed.model_copy(update={"generation": 2, "message": "still no room"})

    events = await observe(kube_client, STARTING, failed, again)

    messages = ["no room\nout of memory", "still no room\nout of memory"]
    assert [event for event in events if event[1] == reason] == [("Warning", reason, text) for text in messages]


async def test_a_replica_that_cannot_start_is_one_warning(kube_client: KubeClient) -> None:
    def waiting(reason: str, message: str) -> AppStatus:
        replica = ReplicaStatus(id="llm-1-x", state=ReplicaState.STARTING, reason=reason, message=message)
        return STARTING.model_copy(update={"groups": [GROUPS[0].model_copy(update={"replicas": [replica]})]})

    events = await observe(
        kube_client, waiting("PullingImage", ""), waiting("ImagePull", "ErrImagePull"), waiting("LoadingModel", "")
    )

    assert sorted((kind, reason) for kind, reason, _ in events) == [
        ("Normal", "LoadingModel"),
        ("Normal", "PullingImage"),
        ("Warning", "ImagePull"),
    ]


async def test_an_app_whose_spec_cannot_be_used_is_not_accepted(kube_client: KubeClient) -> None:
    await KubernetesStore(kube_client, record_codecs()).create(APPS, "a", AppSpec(model=AppModel(id="a/b")))
    observer = ClusterAppObserver(kube_client, "controller", SETTINGS)
    for _ in range(2):
        await observer.on_unreadable(UnreadableRecord("a", "spec.executors: too many"))
    app: dict[str, Any] = await kube_client.get(resources.APPS, "a")
    [accepted] = [each for each in app["status"]["conditions"] if each["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"], accepted["message"]) == (
        "False",
        "InvalidSpec",
        "spec.executors: too many",
    )
    [event] = (await kube_client.list(resources.EVENTS)).items
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "InvalidSpec", 1)


async def test_the_exit_of_a_replica_is_one_event(kube_client: KubeClient) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    exits = [ReplicaExit(replica="llm-1-x", group="llm-1", time=time, message="killed by signal 9 (Killed)")]
    after = SERVING.model_copy(update={"exits": exits})
    events = await observe(kube_client, SERVING, after, after.model_copy(update={"groups": GROUPS}))
    assert ("Warning", "ExecutorExited", "llm-1-x killed by signal 9 (Killed)") in events
    described = await kube_client.list(resources.EVENTS)
    assert [event["count"] for event in described.items if event["reason"] == "ExecutorExited"] == [1]


async def test_temporary_apps_belong_to_the_installation_and_other_apps_do_not(kube_client: KubeClient) -> None:
    labels = {"app": "a"}
    container = {"name": "a", "image": "example"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    body = {"metadata": {"name": "a-controller"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    deployment = await kube_client.create(resources.DEPLOYMENTS, body)
    store, observer = KubernetesStore(kube_client, record_codecs()), ClusterAppObserver(kube_client, "a", SETTINGS)
    names = ("chat", f"{TEMPORARY_PREFIX}0123abcd-1")
    for name in names:
        app: AppRecord = await store.create(APPS, name, AppSpec(model=AppModel(id="a/b")))
        await observer.on_status(await store.update_status(APPS, name, STARTING, app.version), app.status)

    chat, temporary = [await kube_client.get(resources.APPS, name) for name in names]

    assert "ownerReferences" not in chat["metadata"]
    [owner] = temporary["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Deployment", "a-controller")
    assert owner["uid"] == deployment["metadata"]["uid"]
    assert temporary["spec"]["model"]["id"] == "a/b"
