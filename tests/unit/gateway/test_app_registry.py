"""The gateway serves the apps in the store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from cornserve.app.record import AppStatus, Phase, Route
from cornserve.app.settings import Rollout
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store import record_cache
from cornserve.control.store.base import APPS, ROUTES, Store, StoreUnavailableError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_connection import StoreConnections
from cornserve.gateway import app_registry
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.app_registry import AppRegistry
from cornserve.gateway.errors import ApiError
from cornserve.gateway.executor_endpoints import Endpoints, GroupEndpoints
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.task_runs.hosted_app import HostedApp
from cornserve.gateway.task_runs.local_app import LocalApp
from cornserve.gateway.task_runs.task_runner import AppCode
from cornserve.limits import Limits
from cornserve_echo import EchoTask
from tests.credentials import CREDENTIALS
from tests.unit.app_host.apps import TEST_FILES
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.published_route import publish_route, publish_status, ready_group
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

LIBRARY = """
from cornserve import App
from cornserve_tasklib import Chat

app = App(name="library", paths=[Chat(model_id="a/b")])
"""


@pytest_asyncio.fixture(loop_scope="module")
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Returns a store of the test, which may damage it."""
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@pytest.fixture
def loader(fork_server: ForkServer) -> AppLoader:
    return AppLoader(fork_server, Limits())


@pytest_asyncio.fixture(loop_scope="module")
async def apps(store: Store, loader: AppLoader, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AppRegistry]:
    monkeypatch.setattr(app_registry, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(record_cache, "RETRY_SECONDS", 0.05)
    replicas = ReplicaPool(CREDENTIALS)
    apps = AppRegistry(store, loader, replicas, GatewayMetrics())
    yield apps
    apps.close()
    await replicas.close()


async def test_a_gateway_is_not_ready_until_it_has_read_the_store(
    store: Store, apps: AppRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        failures += 1
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "list", fail)
        watching = asyncio.create_task(apps.watch_store())
        await until(lambda: failures >= 2)
        assert not apps.synced.is_set()
    await until(apps.synced.is_set)

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_while_the_store_cannot_be_read_the_apps_are_served_and_the_error_is_logged_once(
    store: Store, apps: AppRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await serve(store, "echo", 1, ECHO)
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: "echo" in apps.served() and apps.synced.is_set())
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        failures += 1
        raise StoreUnavailableError("the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(store, "list", fail)
        patch.setattr(store, "watch", fail)
        patch.setattr(StoreConnections, "is_current", False)  # ends the watch
        await until(lambda: failures >= 3)
        assert apps.synced.is_set()
        assert apps.get("echo").route.generation == 1
    await serve(store, "echo", 2, ECHO)
    await until(lambda: apps.get("echo").route.generation == 2)
    assert sorted(record.message for record in caplog.records if "the disk is broken" in record.message) == [
        "cannot read the App records, which stay as they were read last: the disk is broken",
        "cannot read the AppRoute records, which stay as they were read last: the disk is broken",
    ]

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_an_app_with_a_damaged_record_is_served_as_it_was_read_last(
    store: Store, loader: AppLoader, apps: AppRegistry, tmp_path: Path
) -> None:
    await serve(store, "echo", 1, ECHO)
    await serve(store, "damaged", 1, ECHO.replace('name="echo"', 'name="damaged"'))
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: len(apps.served()) == 2)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("UPDATE records SET status = '{' WHERE name = 'damaged'")
        database.execute("UPDATE changes SET status = '{'")
    restarted = AppRegistry(store, loader, ReplicaPool(CREDENTIALS), GatewayMetrics())
    restarting = asyncio.create_task(restarted.watch_store())
    await until(lambda: "echo" in restarted.served() and restarted.synced.is_set())

    with pytest.raises(ApiError, match=r"'damaged' is damaged: .*: run `cornserve doctor --repair") as caught:
        restarted.get("damaged")
    assert caught.value.status == 503
    assert "damaged" in apps.served()

    for task in (watching, restarting):
        task.cancel()
    await asyncio.gather(watching, restarting, return_exceptions=True)
    restarted.close()


async def test_a_changed_route_of_the_same_code_leaves_out_the_endpoints_of_other_groups(
    store: Store, apps: AppRegistry
) -> None:
    record = await store.create(APPS, "echo", AppSpec(source=AppSource(inline=ECHO)))
    watching = asyncio.create_task(apps.watch_store())
    for generation, groups in enumerate([{"kept": ["a:1"], "removed": ["b:1"]}, {"kept": ["a:1"]}], 1):
        await publish_route(store, record, groups, generation=generation)
        await until(lambda: "echo" in apps.served() and apps.get("echo").route.endpoints == groups)  # noqa: B023

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_an_app_whose_new_generation_cannot_be_loaded_is_a_503_with_the_reason(
    store: Store, apps: AppRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_registry, "RELOAD_SECONDS", 3600)
    record = await store.create(APPS, "echo", AppSpec(source=AppSource(inline=ECHO)))
    watching = asyncio.create_task(apps.watch_store())

    async def route(generation: int, source: str) -> None:
        await publish_route(store, record, {}, spec=AppSpec(source=AppSource(inline=source)), generation=generation)

    await route(1, ECHO)
    await until(lambda: "echo" in apps.served())
    await route(2, "import a_package_that_is_not_here")
    await until(lambda: "echo" not in apps.served())
    with pytest.raises(ApiError, match=r"cannot be loaded.*a_package_that_is_not_here") as caught:
        apps.get("echo")
    assert caught.value.status == 503

    await route(3, ECHO)
    await until(lambda: "echo" in apps.served())
    assert apps.get("echo").route.generation == 3

    await route(4, "import a_package_that_is_not_here")
    await until(lambda: "echo" not in apps.served())
    await store.delete(APPS, "echo")
    await until(lambda: _status(apps) == 404)

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_loading_an_app_is_retried_until_it_succeeds(
    store: Store, apps: AppRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_registry, "RELOAD_SECONDS", 0.05)
    missing, imports = tmp_path / "weights", tmp_path / "imports"
    imports.touch()
    opened = f"with open({str(imports)!r}, 'a') as file: file.write('.')\nwith open({str(missing)!r}): pass\n"
    await serve(store, "echo", 1, opened + ECHO)
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: len(imports.read_text()) >= 3)
    with pytest.raises(ApiError, match=r"cannot be loaded.*weights"):
        apps.get("echo")

    missing.touch()
    await until(lambda: "echo" in apps.served())

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_after_an_unexpected_error_the_gateway_is_not_ready_until_it_watches_the_store_again(
    store: Store, apps: AppRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts"
    hosts.touch()
    watching = asyncio.create_task(apps.watch_store())
    await until(apps.synced.is_set)

    def fail(*args: Any) -> Any:
        raise RuntimeError("unexpected")

    with monkeypatch.context() as patch:
        patch.setattr(app_registry, "replace", fail)
        opened = f"import os\nwith open({str(hosts)!r}, 'a') as file: print(os.getpid(), file=file)\n"
        await serve(store, "echo", 1, opened + ECHO)
        await until(lambda: not apps.synced.is_set())
    await until(lambda: apps.synced.is_set() and "echo" in apps.served())
    first, *_, last = hosts.read_text().split()
    await until(lambda: not psutil.pid_exists(int(first)))
    assert psutil.pid_exists(int(last))

    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_an_app_that_is_slow_to_import_delays_no_other_and_its_old_version_serves_meanwhile(
    store: Store, loader: AppLoader, apps: AppRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    monkeypatch.setattr(app_registry, "SYNC_SECONDS", 0.1)
    old, slow = ECHO, f"import os\nwhile not os.path.exists({str(imported)!r}): pass\n" + ECHO
    await serve(store, "echo", 1, old)
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: "echo" in apps.served())
    await serve(store, "echo", 2, slow)
    await serve(store, "other", 1, ECHO.replace('name="echo"', 'name="other"'))

    await until(lambda: "other" in apps.served())
    assert apps.get("echo").route.generation == 1

    restarted = AppRegistry(store, loader, ReplicaPool(CREDENTIALS), GatewayMetrics())
    restarting = asyncio.create_task(restarted.watch_store())
    await until(lambda: restarted.synced.is_set() and "other" in restarted.served())
    with pytest.raises(ApiError, match="is being loaded") as caught:
        restarted.get("echo")
    assert caught.value.status == 503
    waiting = asyncio.create_task(restarted.wait_while_loading("echo"))

    imported.touch()
    await waiting
    assert restarted.get("echo").route.generation == 2
    await until(lambda: apps.get("echo").route.generation == 2)
    for task in (watching, restarting):
        task.cancel()
    await asyncio.gather(watching, restarting, return_exceptions=True)
    restarted.close()


async def test_a_change_of_replicas_does_not_import_the_app_again(store: Store, apps: AppRegistry) -> None:
    watching = asyncio.create_task(apps.watch_store())
    await serve(store, "echo", 1, ECHO)
    await until(lambda: "echo" in apps.served())
    before = apps.get("echo")

    await serve(store, "echo", 2, ECHO, replicas=3)
    await until(lambda: apps.get("echo").route.generation == 2)

    assert apps.get("echo").code is before.code
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_change_of_an_app_updates_only_its_own_executors(store: Store, loader: AppLoader) -> None:
    updates: list[str] = []

    class RecordingPool(ReplicaPool):
        def update_group(self, key: str, replicas: Mapping[str, str] | None, *args: Any, **options: Any) -> None:
            updates.append(key)
            super().update_group(key, replicas, *args, **options)

    replicas = RecordingPool(CREDENTIALS)
    apps = AppRegistry(store, loader, replicas, GatewayMetrics())
    records = {}
    for name in ("a", "b"):
        spec = AppSpec(source=AppSource(inline=ECHO.replace('name="echo"', f'name="{name}"')))
        created = await store.create(APPS, name, spec)
        records[name] = await publish_route(store, created, {f"echo-{name}": ["127.0.0.1:1"]})
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: len(apps.served()) == 2)
    assert set(updates) == {"echo-a", "echo-b"}

    updates.clear()
    changed = [ready_group("echo-a", ["127.0.0.1:2"])]
    await publish_status(store, records["a"], AppStatus(phase=Phase.SERVING, generation=1, groups=changed))
    await until(lambda: apps.get("a").route.endpoints == {"echo-a": ["127.0.0.1:2"]})

    assert set(updates) == {"echo-a"}
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    apps.close()
    await replicas.close()


class EndingExecutor:
    """Reports an executor that ends, as Kubernetes does."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def watch(self) -> AsyncIterator[Endpoints]:
        yield {"echo-1": GroupEndpoints({}, {self._endpoint: "pod"})}
        await asyncio.Event().wait()


@pytest.mark.parametrize("change", ["is parked", "is recreated"])
async def test_executors_that_end_before_others_start_are_left(
    store: Store, loader: AppLoader, executors: EchoExecutors, change: str
) -> None:
    spec = AppSpec(source=AppSource(inline=ECHO), rollout=Rollout(type="Recreate"))
    endpoint = await executors.replica(EchoTask().spec)
    record = await publish_route(store, await store.create(APPS, "echo", spec), {"echo-1": [endpoint]})
    replicas = ReplicaPool(CREDENTIALS)
    apps = AppRegistry(store, loader, replicas, GatewayMetrics(), EndingExecutor(endpoint))
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: executors.states[endpoint].callers == 1)

    if change == "is parked":
        parked = spec.model_copy(update={"replicas": 0})
        await publish_route(store, record, {"echo-1": [endpoint]}, spec=parked, generation=2)
    else:
        await store.update_spec(APPS, "echo", spec.with_source(inline=ECHO + "#"), record.version)

    await until(lambda: executors.states[endpoint].callers == 0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    apps.close()
    await replicas.close()


@pytest.mark.parametrize(("blocking", "expected"), [((), LocalApp), (("library",), HostedApp)])
async def test_tasks_of_the_library_run_in_the_gateway_unless_their_app_has_blocked_one(
    fork_server: ForkServer, blocking: tuple[str, ...], expected: type[AppCode]
) -> None:
    spec = AppSpec(source=AppSource(inline=LIBRARY))
    route = Route(app_uid="uid", generation=1, spec=spec, shares=[1.0])

    code = await AppLoader(fork_server, Limits(), blocking).load("library", route, "module_of_the_test", print)

    assert isinstance(code, expected)
    assert code.operations == {"chat", "completion"}
    code.close()


async def test_an_app_whose_route_is_deleted_is_served_until_it_is_written_again(
    store: Store, apps: AppRegistry
) -> None:
    await serve(store, "echo", 1, ECHO)
    watching = asyncio.create_task(apps.watch_store())
    await until(lambda: "echo" in apps.served())
    code = apps.get("echo").code
    await store.delete(ROUTES, "echo")
    await serve(store, "other", 1, ECHO.replace('name="echo"', 'name="other"'))
    await until(lambda: "other" in apps.served())
    assert apps.get("echo").code is code

    record = await store.get(APPS, "echo")
    await publish_route(store, record, {}, generation=2)
    await until(lambda: apps.get("echo").route.generation == 2)
    assert apps.get("echo").code is code

    await store.delete(ROUTES, "echo")
    await store.delete(APPS, "echo")
    await until(lambda: _status(apps) == 404)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def serve(store: Store, name: str, generation: int, source: str, *, replicas: int = 1) -> None:
    """Updates the store like a controller whose executors are all ready."""
    spec = AppSpec(source=AppSource(inline=source, allow_paths=TEST_FILES), replicas=replicas)
    record = await (store.create(APPS, name, spec) if generation == 1 else store.get(APPS, name))
    await publish_route(store, record, {}, spec=spec, generation=generation)


def _status(apps: AppRegistry) -> int:
    try:
        apps.get("echo")
    except ApiError as error:
        return error.status
    return 200
