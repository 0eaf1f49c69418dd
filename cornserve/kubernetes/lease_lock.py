"""The requests with which a process takes, renews and releases a Lease."""

from __future__ import annotations

from datetime import UTC, datetime

from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeNotFoundError
from cornserve.kubernetes.resources import LEASES, JsonObject


class LeaseLock:
    """Writes a Lease only if it has not changed since it was read."""

    def __init__(self, client: KubeClient, name: str, identity: str, duration: int) -> None:
        self._client = client
        self._name = name
        self._identity = identity
        self._duration = duration

    async def read(self) -> JsonObject | None:
        """Returns the Lease, or None if it does not exist."""
        try:
            return await self._client.get(LEASES, self._name)
        except KubeNotFoundError:
            return None

    async def take(self, lease: JsonObject | None) -> JsonObject:
        """Returns the Lease with this process as its holder.

        Raises `KubeConflictError` or `KubeAlreadyExistsError` if it has changed.
        """
        now = _now()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        if lease is None:
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": self._name}}
            return await self._client.create(LEASES, body | {"spec": spec})
        spec["leaseTransitions"] = int(lease["spec"].get("leaseTransitions") or 0) + 1
        return await self._client.replace(LEASES, lease | {"spec": spec})

    async def renew(self, lease: JsonObject) -> JsonObject:
        """Raises `KubeConflictError` if the Lease has changed."""
        return await self._client.replace(LEASES, lease | {"spec": lease["spec"] | {"renewTime": _now()}})

    async def release(self, lease: JsonObject) -> None:
        """Lets another process take the Lease at once. Raises `KubeConflictError` if it has changed."""
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        await self._client.replace(LEASES, lease | {"spec": lease["spec"] | freed})


def is_held_by(lease: JsonObject | None, identity: str) -> bool:
    return lease is not None and lease["spec"].get("holderIdentity") == identity


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
