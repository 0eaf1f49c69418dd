"""Writes the records of an app like a controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from cornserve.app.record import AppStatus, GroupStatus, Phase, ReplicaState, ReplicaStatus, Route
from cornserve.app.route_plan import RoutePlan
from cornserve.app.spec import AppSpec
from cornserve.control.store.base import APPS, ROUTES, AppRecord, NotFoundError, Store


async def publish_route(
    store: Store,
    record: AppRecord,
    endpoints: Mapping[str, Sequence[str]],
    *,
    spec: AppSpec | None = None,
    generation: int = 1,
    shares: Sequence[float] = (1.0,),
    plan: RoutePlan | None = None,
    executors: Mapping[str, str] | None = None,
) -> AppRecord:
    """Routes the app to executors that are all ready. Returns the app's new record.

    Args:
        endpoints: by executor key, or by the key of the executor group with a plan or `executors`.
        executors: the key of the executor group of each executor, if it is not that of the executor.
    """
    groups = [ready_group(key, members) for key, members in endpoints.items()]
    await publish_status(store, record, AppStatus(phase=Phase.SERVING, generation=generation, groups=groups))
    route = Route(
        app_uid=record.uid,
        generation=generation,
        spec=spec or record.spec,
        shares=list(shares),
        groups={} if plan else dict(executors or {key: key for key in endpoints}),
        plan=plan,
    )
    with suppress(NotFoundError):
        known = await store.get(ROUTES, record.name)
        await store.update_spec(ROUTES, record.name, route, known.version)
        return await store.get(APPS, record.name)
    await store.create(ROUTES, record.name, route)
    return await store.get(APPS, record.name)


async def publish_status(store: Store, record: AppRecord, status: AppStatus) -> AppRecord:
    """Writes the status. Returns the app's new record."""
    version = (await store.get(APPS, record.name)).version
    return await store.update_status(APPS, record.name, status, version)


def ready_group(key: str, endpoints: Sequence[str]) -> GroupStatus:
    replicas = [
        ReplicaStatus(id=f"replica-{endpoint}", state=ReplicaState.READY, endpoint=endpoint) for endpoint in endpoints
    ]
    return GroupStatus(key=key, wanted=len(replicas), replicas=replicas)
