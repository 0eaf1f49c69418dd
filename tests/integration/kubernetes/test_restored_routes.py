"""Routes that someone deletes or changes are written again."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.app.record import Phase, ReplicaState
from cornserve.control.store.base import APPS, ROUTES, NotFoundError, StoreError
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import APP_ROUTES
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller
from tests.unit.control.test_controller import echo
from tests.waiting import until

CHANGES: dict[str, dict[str, Any]] = {
    "generation": {"generation": 7},
    "shares": {"shares": ["0.5", "0.5"]},
    "executors": {"executors": []},
    "not readable": {"app": "{"},
}


@pytest.mark.parametrize("change", [None, *CHANGES], ids=lambda change: change or "deleted")
async def test_a_route_that_someone_deletes_or_changes_is_restored(kube_client: KubeClient, change: str | None) -> None:
    client = StoreClient(KubernetesStore(kube_client.with_field_manager("cornserve-controller"), record_codecs()))
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await client.deploy("a", echo("a"))
        route = await client.wait_until_served("a")
        before = await kube_client.get(APP_ROUTES, "a")
        if change is None:
            await kube_client.delete(APP_ROUTES, "a")
        else:
            await kube_client.merge_patch(APP_ROUTES, "a", {"spec": CHANGES[change]})

        async def is_restored() -> bool:
            try:
                found = await client.store.get(ROUTES, "a")
            except StoreError:
                return False
            return found.spec == route and (await kube_client.get(APP_ROUTES, "a")) != before

        await until(is_restored)
        assert [group.replicas for group in launcher.groups.values()] == [1]


async def test_an_older_version_keeps_its_executors_when_its_route_is_deleted_during_a_roll_out(
    kube_client: KubeClient,
) -> None:
    client = StoreClient(KubernetesStore(kube_client, record_codecs()))
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await client.deploy("a", echo("a"))
        route = await client.wait_until_served("a")
        [old] = launcher.groups
        launcher.becomes_ready = False
        await client.redeploy("a", echo("a", prefix="new"))
        await until(lambda: len(launcher.groups) == 2)
        launcher.changes.clear()
        await kube_client.delete(APP_ROUTES, "a")

        async def is_restored() -> bool:
            try:
                return (await client.store.get(ROUTES, "a")).spec == route
            except NotFoundError:
                return False

        await until(is_restored)
        assert launcher.changes == []
        [new] = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY)
        await client.wait_for_status("a", lambda status: status.phase is Phase.SERVING and status.generation == 2)
        await client.store.delete(APPS, "a")
        await until(lambda: not launcher.groups)
