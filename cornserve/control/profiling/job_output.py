"""The output of the pod of a Job, which is read while the pod runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeInvalidError, KubeNotFoundError
from cornserve.kubernetes.pods import pod_problem
from cornserve.kubernetes.resources import PODS, JsonObject

log = logging.getLogger(__name__)

JOB_LABEL: Final = "batch.kubernetes.io/job-name"
"""Kubernetes sets this label of the pods of a Job."""


class JobOutput:
    """Reads each complete line once. A Job has at most one pod.

    Args:
        job: the name of the Job.
    """

    def __init__(self, client: KubeClient, job: str) -> None:
        self._client = client
        self._job = job
        self._pod: JsonObject | None = None
        self._read: list[str] = []
        """The lines that the last read returned. The next one returns the lines of its last second again."""
        self.has_started = False
        """Whether a line was read."""
        self.has_ended = False
        """Whether the pod has ended and all lines were read."""
        self.is_deleted = False
        """Whether the pod was deleted."""

    async def new_lines(self) -> Sequence[str]:
        """Returns the lines since the last call. An error of the Kubernetes API is logged: the next call repeats it."""
        try:
            pods = (await self._client.list(PODS, label_selector=f"{JOB_LABEL}={self._job}")).items
            self.is_deleted = self._pod is not None and not pods
            self._pod = pods[0] if pods else None
            lines = await self._new_lines()
        except KubeApiError as error:
            log.warning("cannot read the output of the Job %s: %s", self._job, error)
            return []
        self.has_started = self.has_started or bool(lines)
        self.has_ended = self._phase in ("Succeeded", "Failed")
        return lines

    @property
    def waiting_reason(self) -> str:
        """Why the pod has not started, for users. It may be empty."""
        return "" if self._pod is None or self._phase != "Pending" else pod_problem(self._pod)

    @property
    def _phase(self) -> str:
        return "" if self._pod is None else str(self._pod["status"].get("phase", ""))

    async def _new_lines(self) -> Sequence[str]:
        if self._pod is None or self._phase == "Pending":
            return []
        since = self._read[-1].partition(" ")[0] if self._read else None
        try:
            lines = await self._client.pod_output(self._pod["metadata"]["name"], since=since)
        except (KubeInvalidError, KubeNotFoundError):
            return []
        earlier = set(self._read)
        self._read = [*lines] or self._read
        return [line.partition(" ")[2] for line in lines if line not in earlier]
