"""Measures the options of apps in pods: a Job for each app, on Kubernetes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from cornserve.control.cluster_gateways import cluster_gateways
from cornserve.control.installation_owner import installation_owners
from cornserve.control.launcher.kubernetes.settings import ClusterSettings
from cornserve.control.profiling.job import ProfilerProcessError, ProfilingJob, ProfilingMessage
from cornserve.control.profiling.job_output import JOB_LABEL, JobOutput
from cornserve.control.profiling.kept_results import surplus_results
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeNotFoundError
from cornserve.kubernetes.resources import CONFIG_MAPS, JOBS, PODS, JsonObject, ResourceType

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0

WAIT_SECONDS: Final = 60.0
"""Time for which the pods of earlier measurements may still run: more than their `terminationGracePeriodSeconds`."""

END_SECONDS: Final = 5.0
"""Time to delete a Job that is not wanted any more. A controller that has lost its Lease must end soon."""

KEPT_SECONDS: Final = 300
"""Time for which Kubernetes keeps a Job that has ended, if the controller cannot delete it."""


class ClusterProfiler:
    """Runs Jobs in the namespace of the client.

    The messages are read from the log of the pod, which needs no permissions. A ConfigMap of the installation keeps the
    results for all apps. Kubernetes deletes both with the installation.
    """

    def __init__(self, client: KubeClient, settings: ClusterSettings) -> None:
        self._client = client
        self._settings = settings

    async def __call__(self, job: ProfilingJob) -> AsyncGenerator[ProfilingMessage, None]:
        """Creates the Job, and deletes it at the end. Raises `ProfilerProcessError`."""
        try:
            async with self._running(await self._with_place(job)) as name:
                output, last_line = JobOutput(self._client, name), "without a message"
                while True:
                    for line in await output.new_lines():
                        if (message := job.message(line)) is not None:
                            await self._keep(message)
                            yield message
                        elif line.strip():
                            last_line = line
                    if output.is_deleted:
                        raise ProfilerProcessError("the pod of the profiler was deleted")
                    if output.has_ended:
                        raise ProfilerProcessError(f"the pod of the profiler has ended: {last_line}")
                    if not output.has_started:
                        reason = output.waiting_reason
                        yield ProfilingMessage(progress=f"waits for a pod: {reason}" if reason else "waits for a pod")
                    await asyncio.sleep(POLL_SECONDS)
        except KubeApiError as error:
            raise ProfilerProcessError(str(error)) from error

    async def _with_place(self, job: ProfilingJob) -> ProfilingJob:
        try:
            gateways = await cluster_gateways(self._client, self._settings.instance)
        except OSError as error:
            raise ProfilerProcessError(str(error)) from error
        if not gateways:
            raise ProfilerProcessError("no gateway is ready")
        place = f"pods of {self._settings.instance} in the namespace {self._client.namespace}"
        gpu = self._settings.gpu if self._settings.uses_gpus else self._settings.cpu
        images = {"cpu_image": self._settings.cpu.image, "gpu_image": gpu.image}
        return job.model_copy(update={"gateway": gateways[0], "place": place, **images})

    @asynccontextmanager
    async def _running(self, job: ProfilingJob) -> AsyncIterator[str]:
        """Runs a Job during the block. Kubernetes deletes it with the installation, and its ConfigMap with the Job."""
        name = f"cornserve-profiler-{job.run}"
        content = f"{name}-{uuid4().hex[:8]}"
        await self._end_earlier(name)
        created = await self._client.create(
            JOBS,
            _object(JOBS, await self._own_metadata(name), spec=self._job_spec(job, content)),
        )
        uid = created["metadata"]["uid"]
        try:
            job_reference = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": name, "uid": uid}
            metadata = {"name": content, "labels": self._labels, "ownerReferences": [job_reference]}
            await self._client.create(
                CONFIG_MAPS, _object(CONFIG_MAPS, metadata, data={"job.json": job.model_dump_json()})
            )
            yield name
        finally:
            with suppress(KubeApiError, TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._client.delete(JOBS, name, uid=uid, propagation="Background")

    async def _own_metadata(self, name: str) -> JsonObject:
        """Returns the metadata of an object that belongs to the installation."""
        owners = await installation_owners(self._client, self._settings)
        return {"name": name, "labels": self._labels, "ownerReferences": owners}

    @property
    def _labels(self) -> dict[str, str]:
        labels: dict[str, str] = self._settings.profiler_pod["metadata"]["labels"]
        return labels

    def _job_spec(self, job: ProfilingJob, content: str) -> JsonObject:
        template: JsonObject = deepcopy(self._settings.profiler_pod)
        template["spec"]["volumes"] += [
            {"name": "job", "configMap": {"name": content}},
            {"name": "results", "configMap": {"name": self._results, "optional": True}},
        ]
        return {
            "backoffLimit": 0,
            "activeDeadlineSeconds": job.limit_seconds,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": template,
        }

    @property
    def _results(self) -> str:
        return f"{self._settings.instance}-profiles"

    async def _end_earlier(self, name: str) -> None:
        """Ends the Jobs that earlier controllers have left, and waits until their pods have ended.

        Args:
            name: the name of a Job that may exist without a pod.
        """
        selector = ",".join(f"{label}={value}" for label, value in self._labels.items())
        deadline = monotonic() + WAIT_SECONDS
        await self._end(name)
        while pods := (await self._client.list(PODS, label_selector=selector)).items:
            if monotonic() > deadline:
                raise ProfilerProcessError(f"the pod {pods[0]['metadata']['name']} of earlier measurements still runs")
            for job in {pod["metadata"]["labels"].get(JOB_LABEL, name) for pod in pods}:
                await self._end(job)
            await asyncio.sleep(POLL_SECONDS)

    async def _end(self, job: str) -> None:
        with suppress(KubeNotFoundError):
            await self._client.delete(JOBS, job, propagation="Background")

    async def _keep(self, message: ProfilingMessage) -> None:
        """Keeps the results of an option, so that neither this app nor another one measures them again.

        The oldest results are removed if they need more space than there is.
        """
        if not message.measured:
            return
        try:
            metadata = await self._own_metadata(self._results)
            try:
                kept = (await self._client.get(CONFIG_MAPS, self._results)).get("data") or {}
            except KubeNotFoundError:
                await self._client.create(CONFIG_MAPS, _object(CONFIG_MAPS, metadata, data=message.measured))
                return
            removed = dict.fromkeys(surplus_results(kept, message.measured))
            patch = {"metadata": metadata, "data": {**message.measured, **removed}}
            await self._client.merge_patch(CONFIG_MAPS, self._results, patch)
        except KubeApiError as error:
            log.warning("the results of measurements are not kept: %s", error)


def _object(type: ResourceType, metadata: JsonObject, **fields: Any) -> JsonObject:
    return {"apiVersion": type.api_version, "kind": type.kind, "metadata": metadata, **fields}
