"""The store, logs, events and endpoints that a gateway reads, on one machine or on Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.logs import LocalReplicaLogs
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.control.store.base import Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.gateway.context import AppEventReader, ReplicaKiller, ReplicaLogReader
from cornserve.gateway.executor_endpoints import EndpointSource
from cornserve.gateway.state_events import state_events
from cornserve.gateway_reader import FindGateways, KnownGateways
from cornserve.home import Home


@dataclass(frozen=True, slots=True)
class Backend:
    store: Store
    logs: ReplicaLogReader
    events: AppEventReader = state_events
    kill_replica: ReplicaKiller | None = None
    """Kills replicas, if they are processes of this machine."""
    endpoints: EndpointSource | None = None
    """The source of endpoints, or None if the apps' records contain them."""
    on_kubernetes: bool = False
    """Whether the executors are pods."""
    find_start_problem: Callable[[], str] = lambda: ""
    """Returns why no executor can start on this machine, or an empty text."""
    find_gateways: FindGateways | None = None
    """Finds the gateways, or None if their addresses are fixed."""


@asynccontextmanager
async def local_backend(home: Home) -> AsyncIterator[Backend]:
    """Uses the files in the home of an instance."""
    store, state_dir = SqliteStore(home.store), StateDir(home.replicas)

    async def kill_replica(replica: str) -> bool:
        return await asyncio.to_thread(state_dir.kill, ReplicaId(replica))

    try:
        yield Backend(
            store, LocalReplicaLogs(home), kill_replica=kill_replica, find_start_problem=state_dir.find_problem
        )
    finally:
        await store.close()


@asynccontextmanager
async def kubernetes_backend(instance: str) -> AsyncIterator[Backend]:
    """Uses the objects of an installation in the namespace of this pod.

    Args:
        instance: the label `app.kubernetes.io/instance` of the installation.
    """
    # They load the client of Kubernetes.
    from cornserve.control.cluster_gateways import cluster_gateways
    from cornserve.control.launcher.kubernetes.logs import ClusterReplicaLogs
    from cornserve.control.store.kubernetes import SPEC_MANAGER, KubernetesStore
    from cornserve.control.store.kubernetes_records import record_codecs
    from cornserve.gateway.kubernetes_endpoints import EndpointSliceSource
    from cornserve.gateway.kubernetes_events import KubernetesEvents
    from cornserve.kubernetes.client import KubeClient

    async with KubeClient.connect(field_manager=SPEC_MANAGER) as client:
        store = KubernetesStore(client, record_codecs())
        logs, events = ClusterReplicaLogs(client, instance), KubernetesEvents(client)
        endpoints = EndpointSliceSource(client, instance)
        find_gateways = KnownGateways(partial(cluster_gateways, client, instance))
        yield Backend(store, logs, events, endpoints=endpoints, on_kubernetes=True, find_gateways=find_gateways)
