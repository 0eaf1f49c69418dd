"""The output of the pod of a Job, with a made Kubernetes API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cornserve.control.profiling.job_output import JobOutput
from cornserve.kubernetes.errors import KubeApiError, KubeUnavailableError
from cornserve.kubernetes.pages import ObjectList
from cornserve.kubernetes.resources import ResourceType

AWAY = KubeUnavailableError(0, "Unreachable", "the API server is away")


class PodApi:
    """A pod with times and lines."""

    def __init__(self) -> None:
        self.phase: str | None = "Pending"
        self.status: dict[str, Any] = {
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has GPUs"}
            ]
        }
        self.lines: list[str] = []
        self.error: KubeApiError | None = None

    async def list(self, type: ResourceType, *, label_selector: str) -> ObjectList:
        pod = {"metadata": {"name": "a"}, "status": {"phase": self.phase, **self.status}}
        return ObjectList([] if self.phase is None else [pod], "1")

    async def pod_output(self, name: str, *, since: str | None) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        return [line for line in self.lines if since is None or line.split(".")[0] >= since.split(".")[0]]


@pytest.fixture
def api() -> PodApi:
    return PodApi()


@pytest.fixture
def output(api: PodApi) -> JobOutput:
    return JobOutput(api, "job")  # type: ignore[arg-type]


async def test_each_line_is_read_once(api: PodApi, output: JobOutput) -> None:
    assert await output.new_lines() == []
    assert (output.has_started, output.waiting_reason) == (False, "Unschedulable: no node has GPUs")
    api.phase, api.lines = "Running", ["01.1 first", "01.2 second line"]
    assert await output.new_lines() == ["first", "second line"]
    assert await output.new_lines() == []
    api.lines += ["01.3 third", "02.0 third"]
    assert await output.new_lines() == ["third", "third"]
    api.phase, api.lines = "Succeeded", [*api.lines, "03.0 end"]
    assert not output.has_ended
    assert await output.new_lines() == ["end"]
    assert (output.has_started, output.has_ended, output.is_deleted) == (True, True, False)


async def test_an_image_that_cannot_be_pulled_is_the_reason_of_a_waiting_pod(api: PodApi, output: JobOutput) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    api.status = {"containerStatuses": [{"name": "profiler", "state": waiting}]}
    await output.new_lines()
    assert output.waiting_reason == "ErrImagePull: no such image"
    api.phase, api.status = "Running", {}
    await output.new_lines()
    assert output.waiting_reason == ""


async def test_a_failed_read_is_repeated(api: PodApi, output: JobOutput, caplog: pytest.LogCaptureFixture) -> None:
    api.phase, api.lines, api.error = "Failed", ["01.1 first"], AWAY
    assert await output.new_lines() == []
    assert not output.has_ended
    assert "cannot read the output of the Job job: the API server is away" in caplog.text
    api.error = None
    assert await output.new_lines() == ["first"]
    assert output.has_ended


async def test_a_pod_that_was_deleted_is_noticed(api: PodApi, output: JobOutput) -> None:
    api.phase = None
    await output.new_lines()
    assert not output.is_deleted
    api.phase = "Pending"
    await output.new_lines()
    api.phase = None
    await output.new_lines()
    assert output.is_deleted
