"""Read access to the logs of executors."""

from __future__ import annotations

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.kubernetes.names import COMPONENT, CONTAINER
from cornserve.control.launcher.kubernetes.pod_observation import container_status, parse_replica_id
from cornserve.control.launcher.log_excerpts import cut_line
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeApiError, KubeInvalidError, KubeNotFoundError
from cornserve.kubernetes.resources import PODS
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, INSTANCE_LABEL


class ClusterReplicaLogs:
    """Reads the logs of the executors of one installation, and of no other pods."""

    def __init__(self, client: KubeClient, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def __call__(self, replica: str, lines: int) -> list[str]:
        """Returns the last lines of a replica's log. Kubernetes keeps the logs of the last two runs of a pod.

        The only line is the reason if the log cannot be read, for example because its node does not respond.
        """
        name, restarts = parse_replica_id(ReplicaId(replica))
        if lines <= 0 or not name:
            return []
        try:
            pod = await self._client.get(PODS, name)
            labels = pod["metadata"].get("labels", {})
            if (labels.get(INSTANCE_LABEL), labels.get(COMPONENT_LABEL)) != (self._instance, COMPONENT):
                return []
            later_runs = int(container_status(pod).get("restartCount", 0)) - restarts
            if later_runs not in (0, 1):
                return []
            read = self._client.pod_log(name, tail_lines=lines, previous=later_runs == 1, container=CONTAINER)
            return [cut_line(line) for line in await read]
        except (KubeNotFoundError, KubeInvalidError):
            return []
        except KubeApiError as error:
            return [cut_line(f"the log cannot be read: {error}")]
