"""What a gateway serves follows the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cornserve.app.record import AppSpec, AppStatus, Phase, Route
from cornserve.control.store.base import APPS, Store, UnavailableError
from cornserve.gateway import apps as apps_module
from cornserve.gateway.apps import Apps
from cornserve.gateway.errors import ApiError
from cornserve.gateway.replica import Replicas
from tests.unit.gateway.sources import ECHO
from tests.waiting import until


@pytest.fixture
async def apps(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Apps]:
    """Followed while the test runs."""
    monkeypatch.setattr(apps_module, "RETRY_SECONDS", 0.05)
    replicas = Replicas()
    apps = Apps(store, replicas)
    yield apps
    await replicas.close()


@pytest.mark.parametrize("method", ["list", "watch"])
async def test_a_store_that_fails_is_read_again_and_meanwhile_the_gateway_is_not_ready(
    store: Store, apps: Apps, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        failures += 1
        assert method == "list" or apps.synced.is_set()
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, method, fail)
        following = asyncio.create_task(apps.follow())
        await until(lambda: failures >= 2 and not apps.synced.is_set())
    await until(apps.synced.is_set)

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_app_whose_new_generation_cannot_be_loaded_is_a_503_that_says_why(store: Store, apps: Apps) -> None:
    record = await store.create(APPS, "echo", AppSpec(source=ECHO))
    following = asyncio.create_task(apps.follow())

    async def route(generation: int, source: str) -> None:
        route = Route(generation=generation, spec=AppSpec(source=source), shares=[1.0], endpoints={})
        version = (await store.get(APPS, record.name)).version
        await store.update_status(APPS, record.name, AppStatus(phase=Phase.SERVING, route=route), version)

    await route(1, ECHO)
    await until(lambda: "echo" in apps.all())
    await route(2, "import a_package_that_is_not_here")
    await until(lambda: "echo" not in apps.all())
    with pytest.raises(ApiError, match=r"cannot be loaded.*a_package_that_is_not_here") as caught:
        apps.get("echo")
    assert caught.value.status == 503

    await route(3, ECHO)
    await until(lambda: "echo" in apps.all())
    assert apps.get("echo").route.generation == 3

    await route(4, "import a_package_that_is_not_here")
    await until(lambda: "echo" not in apps.all())
    await store.delete(APPS, "echo")
    await until(lambda: _status(apps) == 404)

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


def _status(apps: Apps) -> int:
    try:
        apps.get("echo")
    except ApiError as error:
        return error.status
    return 200
