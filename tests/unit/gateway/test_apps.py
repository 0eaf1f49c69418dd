"""What a gateway serves follows the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import AppSpec, AppStatus, Phase, Route
from cornserve.control.store.base import APPS, Store, StoreUnavailableError
from cornserve.gateway import apps as apps_module
from cornserve.gateway import deployed
from cornserve.gateway.apps import Apps
from cornserve.gateway.errors import ApiError
from cornserve.gateway.observe.metrics import Metrics
from cornserve.gateway.request.replicas import Replicas
from tests.unit.gateway.sources import ECHO
from tests.waiting import until


@pytest.fixture
async def apps(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Apps]:
    """Followed while the test runs."""
    monkeypatch.setattr(apps_module, "RETRY_SECONDS", 0.05)
    replicas = Replicas()
    apps = Apps(store, replicas, Metrics())
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
        raise StoreUnavailableError("the disk is full")

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


async def test_an_app_that_cannot_be_loaded_for_a_while_is_served_when_it_can(
    store: Store, apps: Apps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps_module, "RELOAD_SECONDS", 0.05)
    missing, imports = tmp_path / "weights", tmp_path / "imports"
    imports.touch()
    opened = f"with open({str(imports)!r}, 'a') as it: it.write('.')\nwith open({str(missing)!r}): pass\n"
    await serve(store, "echo", 1, opened + ECHO)
    following = asyncio.create_task(apps.follow())
    await until(lambda: len(imports.read_text()) >= 3)
    with pytest.raises(ApiError, match=r"cannot be loaded.*weights"):
        apps.get("echo")

    missing.touch()
    await until(lambda: "echo" in apps.all())

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_nobody_foresaw_leaves_no_gateway_that_looks_ready_and_follows_nothing(
    store: Store, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = asyncio.create_task(apps.follow())
    await until(apps.synced.is_set)

    def fail(*args: Any) -> Any:
        raise RuntimeError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(apps_module, "replace", fail)
        await serve(store, "echo", 1, ECHO)
        await until(lambda: not apps.synced.is_set())
    await until(lambda: apps.synced.is_set() and "echo" in apps.all())

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_an_app_that_is_slow_to_import_holds_up_no_other_and_is_served_by_its_old_version_meanwhile(
    store: Store, apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = threading.Event()

    def load_slowly(name: str, spec: AppSpec, module: str) -> App:
        if "# slow" in str(spec.source):
            imported.wait()
        return load_app(name, spec, module)

    monkeypatch.setattr(deployed, "load_app", load_slowly)
    monkeypatch.setattr(apps_module, "SYNC_SECONDS", 0.1)
    old, slow = ECHO, ECHO + "# slow"
    await serve(store, "echo", 1, old)
    following = asyncio.create_task(apps.follow())
    await until(lambda: "echo" in apps.all())
    await serve(store, "echo", 2, slow)
    await serve(store, "other", 1, ECHO.replace('name="echo"', 'name="other"'))

    await until(lambda: "other" in apps.all())
    assert apps.get("echo").route.generation == 1

    restarted = Apps(store, Replicas(), Metrics())
    restarting = asyncio.create_task(restarted.follow())
    await until(restarted.synced.is_set)
    assert "other" in restarted.all()
    with pytest.raises(ApiError, match="is being loaded") as caught:
        restarted.get("echo")
    assert caught.value.status == 503

    imported.set()
    await until(lambda: apps.get("echo").route.generation == 2)
    for task in (following, restarting):
        task.cancel()
    await asyncio.gather(following, restarting, return_exceptions=True)


async def test_other_replicas_are_no_reason_to_import_an_app_again(store: Store, apps: Apps) -> None:
    following = asyncio.create_task(apps.follow())
    await serve(store, "echo", 1, ECHO)
    await until(lambda: "echo" in apps.all())
    before = apps.get("echo")

    await serve(store, "echo", 2, ECHO, replicas=3)
    await until(lambda: apps.get("echo").route.generation == 2)

    assert apps.get("echo").app is before.app
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def serve(store: Store, name: str, generation: int, source: str, *, replicas: int = 1) -> None:
    """As the controller does when every executor is ready."""
    spec = AppSpec(source=source, replicas=replicas)
    record = await (store.create(APPS, name, spec) if generation == 1 else store.get(APPS, name))
    route = Route(generation=generation, spec=spec, shares=[1.0], endpoints={})
    await store.update_status(APPS, name, AppStatus(phase=Phase.SERVING, route=route), record.version)


def _status(apps: Apps) -> int:
    try:
        apps.get("echo")
    except ApiError as error:
        return error.status
    return 200
