"""Jobs that measure apps. The tests create their pods, as the controller of Jobs does, and write their logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager

import pytest

from cornserve.app.planning import WorkloadType
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.cluster_job import ClusterProfiler
from cornserve.control.profiling.job import ProfilerProcessError, ProfilingJob, ProfilingMessage
from cornserve.control.profiling.job_output import JOB_LABEL
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.resources import CONFIG_MAPS, JOBS, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.stub_gateway import LABELS, StubGateway
from tests.kubernetes.stub_kubelet import StubKubelet, stub_kubelet
from tests.waiting import until

JOB = ProfilingJob(
    app="caption",
    uid="11111111-2222-3333-4444-555555555555",
    spec=AppSpec(source=AppSource(inline="app = App()")),
    workload={"text": WorkloadType(components=["llm"], share=1.0)},
    seconds=30,
)
NAME = f"cornserve-profiler-{JOB.run}"
MEASURED = ProfilingMessage(measured={"llm-cluster.json": "{}"})
LATER = ProfilingMessage(measured={"encoder-cluster.json": "{ }"})
PROFILE = ProfilingMessage(profile={"version": 1})
PODS_OF_JOB = {"app.kubernetes.io/component": "profiler", JOB_LABEL: NAME}
INSTANCE = {"app.kubernetes.io/instance": "cornserve"}


@pytest.fixture
def settings() -> ClusterSettings:
    container = {
        "name": "profiler",
        "image": "example",
        "volumeMounts": [{"name": "job", "mountPath": "/job"}, {"name": "results", "mountPath": "/results"}],
    }
    pod = {
        "metadata": {"labels": {"app.kubernetes.io/component": "profiler"}},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": []},
    }
    content = {
        "instance": "cornserve",
        "controllerName": "cornserve-controller",
        "cpu": {"image": "cpu:1"},
        "gpu": {"image": "gpu:1"},
        "secretName": "cornserve",
        "profilerPod": pod,
    }
    return ClusterSettings.model_validate(content)


@pytest.fixture
def kubelet(api_server: ApiServer) -> Iterator[StubKubelet]:
    with stub_kubelet(api_server.files.directory) as kubelet:
        yield kubelet


@pytest.fixture
def controller(api_server: ApiServer, kube_namespace: str) -> JsonObject:
    """The owner reference to the Deployment of the controllers."""
    labels = {"app": "controller"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "controller", "image": "example"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "cornserve-controller"}, "spec": spec}
    created = api_server.request("POST", f"/apis/apps/v1/namespaces/{kube_namespace}/deployments", body)
    uid = created["metadata"]["uid"]
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cornserve-controller", "uid": uid}


@pytest.fixture
def gateway(
    api_server: ApiServer,
    kube_namespace: str,
    kubelet: StubKubelet,
    controller: JsonObject,
    monkeypatch: pytest.MonkeyPatch,
) -> StubGateway:
    monkeypatch.setattr("cornserve.control.profiling.cluster_job.POLL_SECONDS", 0.05)
    gateway = StubGateway(api_server, kube_namespace, kubelet)
    gateway.install()
    gateway.add_pod("gateway-0", 1, labels=LABELS | INSTANCE)
    return gateway


class RunningJob:
    """A Job and the messages that its process has sent."""

    def __init__(self, client: KubeClient, settings: ClusterSettings) -> None:
        self._client = client
        self.messages: list[ProfilingMessage] = []
        self._task = asyncio.create_task(self._read(ClusterProfiler(client, settings)))

    async def _read(self, profiler: ClusterProfiler) -> None:
        async with aclosing(profiler(JOB)) as messages:
            async for message in messages:
                self.messages.append(message)
                if message.profile is not None:
                    return

    async def exists(self) -> bool:
        try:
            await self._client.get(JOBS, NAME)
        except KubeNotFoundError:
            return False
        return True

    async def end(self) -> None:
        await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def running_job(client: KubeClient, settings: ClusterSettings) -> AsyncIterator[RunningJob]:
    job = RunningJob(client, settings)
    try:
        yield job
    finally:
        await job.cancel()


async def test_a_job_reports_its_progress_and_its_results_are_kept(
    kube_client: KubeClient,
    settings: ClusterSettings,
    gateway: StubGateway,
    controller: JsonObject,
    kubelet: StubKubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cornserve.control.profiling.kept_results.MAX_KEPT_BYTES", 40)
    async with running_job(kube_client, settings) as job:
        await until(job.exists)
        await until(lambda: job.messages[-1:] == [ProfilingMessage(progress="waits for a pod")])
        created = await kube_client.get(JOBS, NAME)
        assert created["metadata"]["ownerReferences"] == [controller]
        volumes = {each["name"]: each["configMap"] for each in created["spec"]["template"]["spec"]["volumes"]}
        assert volumes["results"]["name"] == "cornserve-profiles"
        assert (created["spec"]["activeDeadlineSeconds"], created["spec"]["ttlSecondsAfterFinished"]) == (930, 300)
        config_map = await kube_client.get(CONFIG_MAPS, volumes["job"]["name"])
        [owner] = config_map["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", created["metadata"]["uid"])
        content = ProfilingJob.model_validate_json(config_map["data"]["job.json"])
        place = f"pods of cornserve in the namespace {kube_client.namespace}"
        images = {"cpu_image": "cpu:1", "gpu_image": "gpu:1"}
        assert content == JOB.model_copy(update={"gateway": "http://127.0.0.1:8000", "place": place, **images})

        started = ProfilingMessage(progress="llm with llm")
        kubelet.logs["profiler-0", False] = f"{JOB.line(started)}\na warning of a library\n"
        await asyncio.to_thread(gateway.add_pod, "profiler-0", 1, labels=PODS_OF_JOB)
        await until(lambda: job.messages[-1] == started)
        kubelet.logs["profiler-0", False] += f"{JOB.line(MEASURED)}\n{JOB.line(LATER)}\n{JOB.line(PROFILE)}\n"
        await job.end()
        assert job.messages[-3:] == [MEASURED, LATER, PROFILE]

    assert not await job.exists()
    kept = await kube_client.get(CONFIG_MAPS, "cornserve-profiles")
    assert kept["data"] == LATER.measured  # Both do not fit.
    assert kept["metadata"]["ownerReferences"] == [controller]


async def test_a_log_of_any_length_is_read_to_its_end(
    kube_client: KubeClient,
    settings: ClusterSettings,
    gateway: StubGateway,
    kubelet: StubKubelet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cornserve.kubernetes.client.MAX_OUTPUT_BYTES", 1000)
    steps = [ProfilingMessage(progress=f"step {number} \u2028") for number in range(40)]
    kubelet.logs["profiler-0", False] = "".join(f"{JOB.line(step)}\n" for step in steps)
    async with running_job(kube_client, settings) as job:
        await until(job.exists)
        await asyncio.to_thread(gateway.add_pod, "profiler-0", 1, labels=PODS_OF_JOB)
        await until(lambda: job.messages[-1:] == steps[-1:])
        line = JOB.line(PROFILE)
        kubelet.logs["profiler-0", False] += f"{PROFILE.model_dump_json()}\n{line[:20]}"
        read = len(kubelet.requests)
        await until(lambda: len(kubelet.requests) > read + 1)
        kubelet.logs["profiler-0", False] += f"{line[20:]}\n"
        await job.end()
    assert [message for message in job.messages if "step" in message.progress] == steps
    assert job.messages[-1] == PROFILE


async def test_a_later_controller_ends_earlier_jobs_and_keeps_its_own(
    kube_client: KubeClient, settings: ClusterSettings, gateway: StubGateway
) -> None:
    async with running_job(kube_client, settings) as earlier:
        await until(earlier.exists)
        labels = PODS_OF_JOB | {JOB_LABEL: "cornserve-profiler-another"}
        await asyncio.to_thread(gateway.add_pod, "profiler-0", 1, labels=labels)
        uid = (await kube_client.get(JOBS, NAME))["metadata"]["uid"]
        async with running_job(kube_client, settings) as later:

            async def is_deleted() -> bool:
                return not await later.exists()

            await until(is_deleted)
            await asyncio.to_thread(gateway.delete_pod, "profiler-0")
            await until(later.exists)
            assert (await kube_client.get(JOBS, NAME))["metadata"]["uid"] != uid
            await earlier.cancel()
            assert await later.exists()


async def test_the_wait_for_earlier_pods_is_limited(
    kube_client: KubeClient, settings: ClusterSettings, gateway: StubGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.profiling.cluster_job.WAIT_SECONDS", 0)
    await asyncio.to_thread(gateway.add_pod, "profiler-0", 1, labels=PODS_OF_JOB)
    async with running_job(kube_client, settings) as job:
        with pytest.raises(ProfilerProcessError, match="the pod profiler-0 of earlier measurements still runs"):
            await job.end()


async def test_a_job_whose_pod_is_deleted_fails_and_leaves_nothing(
    kube_client: KubeClient, settings: ClusterSettings, gateway: StubGateway, kubelet: StubKubelet
) -> None:
    async with running_job(kube_client, settings) as job:
        await until(job.exists)
        kubelet.logs["profiler-0", False] = f"{JOB.line(MEASURED)}\n"
        await asyncio.to_thread(gateway.add_pod, "profiler-0", 1, labels=PODS_OF_JOB)
        await until(lambda: MEASURED in job.messages)
        await asyncio.to_thread(gateway.delete_pod, "profiler-0")
        with pytest.raises(ProfilerProcessError, match="the pod of the profiler was deleted"):
            await job.end()

    assert not await job.exists()
    assert "llm-cluster.json" in (await kube_client.get(CONFIG_MAPS, "cornserve-profiles"))["data"]


async def test_a_job_that_is_not_wanted_any_more_is_deleted(
    kube_client: KubeClient, settings: ClusterSettings, gateway: StubGateway
) -> None:
    async with running_job(kube_client, settings) as job:
        await until(lambda: job.messages != [])
        assert await job.exists()
    assert not await job.exists()


async def test_a_job_needs_a_gateway(kube_client: KubeClient, settings: ClusterSettings) -> None:
    with pytest.raises(ProfilerProcessError, match="no gateway is ready"):
        async for _ in ClusterProfiler(kube_client, settings)(JOB):
            pass
