"""Measurements that end early: another attempt of the controller may succeed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.planning import WorkloadType
from cornserve.app.record import AppView, GroupStatus, ReplicaState, ReplicaStatus
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client
from cornserve.control.profiling.job import ProfilingJob, ProfilingMessage
from cornserve.profiler.temporary_apps import SlowStartError, TemporaryApp, TemporaryApps
from cornserve.profiler.worker import Messages, outcome
from cornserve_echo.stages import StageTask
from tests.unit.http_server import StubServer, json_response, serving

SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.1, gpus=0)
"""


def view(name: str, message: str = "", *replicas: ReplicaStatus) -> dict[str, Any]:
    groups = [GroupStatus(key="key", wanted=1, replicas=[*replicas]).model_dump(mode="json")] if replicas else []
    status = {"phase": "starting", "generation": 1, "message": message, "groups": groups}
    return {
        "name": name,
        "uid": "u",
        "generation": 1,
        "version": 1,
        "spec": {"source": {"inline": SOURCE}},
        "status": status,
    }


def replica(message: str = "") -> ReplicaStatus:
    return ReplicaStatus(id="key-1", state=ReplicaState.STARTING, message=message)


@pytest.mark.parametrize(
    ("app", "activity"),
    [
        (view("caption"), "0 of 0 replicas are ready"),
        (view("caption", "", replica()), "0 of 1 replicas are ready"),
        (view("caption", "", replica("loads the weights"), replica()), "loads the weights"),
        (view("caption", "builds the image", replica("loads the weights")), "builds the image"),
    ],
)
def test_a_slow_start_has_a_reason(app: dict[str, Any], activity: str) -> None:
    with serving() as server, Client(server.url) as client:
        server.on("PUT /admin/v1/apps/caption", json_response(app))
        server.on("GET /admin/v1/apps/caption", json_response(app))
        with pytest.raises(SlowStartError, match=f"^does not serve after 0 s: {activity}$"):
            TemporaryApps(client).start(
                "caption", AppSpec(source=AppSource(inline=SOURCE)), StageTask(seconds={"llm": 0.1}).spec, 0
            )


def measured(server: StubServer, home: Path) -> ProfilingMessage:
    server.on("GET /admin/v1/apps", json_response({"apps": [], "unreadable": []}))
    job = ProfilingJob(
        app="caption",
        uid="uid",
        spec=AppSpec(source=AppSource(inline=SOURCE)),
        workload={"captions": WorkloadType(components=["encoder", "llm"], share=1.0)},
        seconds=600,
        gateway=server.url,
        home=home,
        place="a cluster",
    )
    return outcome(job, None, Messages(io.StringIO(), job))


def test_a_slow_start_is_an_interruption_after_all_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def start(apps: TemporaryApps, name: str, spec: AppSpec, executor: object, timeout: float) -> TemporaryApp:
        timeouts.append(timeout)
        raise SlowStartError("does not serve after 600 s: loads the weights")

    monkeypatch.setattr(TemporaryApps, "start", start)
    with serving() as server:
        result = measured(server, tmp_path)

    assert result.error == ""
    assert result.interruption.endswith("does not serve after 600 s: loads the weights: give more device time")
    assert result.slow_start == result.interruption.partition(":")[0] != ""
    assert timeouts == [600]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_deleted_temporary_app_is_an_interruption(
    is_deleted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(apps: TemporaryApps, name: str, *_: object) -> TemporaryApp:
        if not is_deleted:
            server.on(f"GET /admin/v1/apps/{name}", json_response(view(name)))
        group = GroupStatus(key="key", wanted=1, replicas=[replica()])
        return TemporaryApp(AppView.model_validate(view(name)), group, 0.1)

    monkeypatch.setattr(TemporaryApps, "start", start)
    with serving() as server:
        result = measured(server, tmp_path)

    assert ("its temporary app cornserve-measured-" in result.interruption) == is_deleted
    assert ("a request failed during the measurement" in result.error) != is_deleted
