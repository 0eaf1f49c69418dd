"""The controller with a real store, a real launcher and real executor processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from cornserve.app.record import AppSpec, AppStatus, Phase, ReplicaState
from cornserve.control.controller import Controller
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from tests.waiting import until


def echo(prefix: str = "", *, name: str = "echo", replicas: int = 1, **settings: object) -> AppSpec:
    arguments = "".join(f", {key}={value!r}" for key, value in settings.items())
    source = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Echo(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask(prefix={prefix!r}{arguments})

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name={name!r}, paths=[Echo()])
"""
    return AppSpec(source=source, replicas=replicas)


class Plane:
    """A control plane under test."""

    def __init__(self, store: Store, home: Home) -> None:
        self.store = store
        self.home = home
        self.launcher = LocalLauncher(home, DeviceSlots.cpu(2), drain_seconds=5, first_delay=0.05)

    async def deploy(self, spec: AppSpec, name: str = "echo") -> AppRecord:
        return await self.store.create(APPS, name, spec)

    async def redeploy(self, spec: AppSpec, name: str = "echo") -> AppRecord:
        record = await self.store.get(APPS, name)
        return await self.store.update_spec(APPS, name, spec, record.version)

    async def status(self, name: str = "echo") -> AppStatus:
        return (await self.store.get(APPS, name)).status

    async def reaches(self, condition: Callable[[AppStatus], bool], name: str = "echo") -> AppStatus:
        async def holds() -> bool:
            return condition(await self.status(name))

        await until(holds, seconds=60)
        return await self.status(name)

    async def serves(self, generation: int = 1, name: str = "echo") -> AppStatus:
        return await self.reaches(lambda it: it.phase is Phase.SERVING and it.generation == generation, name)


def endpoints(status: AppStatus) -> set[str]:
    assert status.route is not None
    return {endpoint for group in status.route.endpoints.values() for endpoint in group}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@asynccontextmanager
async def running(plane: Plane) -> AsyncIterator[Plane]:
    await plane.launcher.start()
    controlling = asyncio.create_task(Controller(plane.store, plane.launcher).run())
    yield plane
    assert not controlling.done()
    controlling.cancel()
    await asyncio.gather(controlling, return_exceptions=True)
    await plane.launcher.close()


@pytest.fixture
async def plane(store: Store, tmp_path: Path) -> AsyncIterator[Plane]:
    home = Home(tmp_path)
    async with running(Plane(store, home)) as plane:
        yield plane
    await _sweep(home)


async def _sweep(home: Home) -> None:
    launcher = LocalLauncher(home, DeviceSlots.cpu(2), drain_seconds=5)
    await launcher.start()
    await launcher.prune(set())
    await until(lambda: not launcher.replicas())
    await launcher.close()


async def test_a_stored_app_comes_to_be_served(plane: Plane) -> None:
    await plane.deploy(echo(replicas=2))

    status = await plane.serves()

    status = await plane.reaches(lambda it: len(endpoints(it)) == 2)
    (group,) = status.groups
    assert (group.wanted, group.ready) == (2, 2)


async def test_apps_with_equal_unit_tasks_share_executors(plane: Plane) -> None:
    await plane.deploy(echo(name="one"), "one")
    await plane.deploy(echo(name="two"), "two")
    await plane.deploy(echo("other", name="three"), "three")

    one, two, three = [endpoints(await plane.serves(name=name)) for name in ("one", "two", "three")]

    assert one == two
    assert not one & three


async def test_deleting_one_of_two_apps_leaves_the_shared_executor(plane: Plane) -> None:
    await plane.deploy(echo(name="one"), "one")
    await plane.deploy(echo(name="two"), "two")
    before = endpoints(await plane.serves(name="one")) | endpoints(await plane.serves(name="two"))

    await plane.store.delete(APPS, "one")
    await plane.deploy(echo("other", name="three"), "three")
    await plane.serves(name="three")

    assert endpoints(await plane.status("two")) == before


async def test_the_executors_of_a_deleted_app_end(plane: Plane) -> None:
    await plane.deploy(echo())
    await plane.serves()

    await plane.store.delete(APPS, "echo")

    await until(lambda: not plane.launcher.replicas())


async def test_an_app_that_cannot_start_says_why_and_leaves_nothing(plane: Plane) -> None:
    await plane.deploy(echo(fail_start="no such model"))

    status = await plane.reaches(lambda it: it.phase is Phase.FAILED)

    assert "did not start" in status.message
    assert "RuntimeError: no such model" in status.logs[-1]
    await until(lambda: not plane.launcher.replicas())
    assert status.route is None


async def test_an_app_that_cannot_be_loaded_says_why(plane: Plane) -> None:
    await plane.deploy(AppSpec(source="import nothing_like_this"))

    status = await plane.reaches(lambda it: it.phase is Phase.FAILED)

    assert "No module named 'nothing_like_this'" in status.message


async def test_a_new_version_takes_over_when_it_is_ready(plane: Plane) -> None:
    await plane.deploy(echo("old"))
    old = endpoints(await plane.serves())

    await plane.redeploy(echo("new", start_seconds=1.0))
    starting = await plane.reaches(lambda it: it.phase is Phase.STARTING and it.generation == 2)
    assert endpoints(starting) == old
    new = endpoints(await plane.serves(generation=2))

    assert not new & old
    await until(lambda: {replica.endpoint for replica in plane.launcher.replicas()} == new)


async def test_a_new_version_that_fails_leaves_the_old_one_serving(plane: Plane) -> None:
    await plane.deploy(echo("old"))
    old = endpoints(await plane.serves())

    await plane.redeploy(echo("new", fail_start="broken"))
    status = await plane.reaches(lambda it: it.phase is Phase.FAILED)

    assert endpoints(status) == old
    await until(lambda: {replica.endpoint for replica in plane.launcher.replicas()} == old)


async def test_what_failed_is_tried_again_as_a_new_generation(plane: Plane) -> None:
    await plane.deploy(echo(fail_start="broken"))
    await plane.reaches(lambda it: it.phase is Phase.FAILED)

    await plane.redeploy(echo())

    await plane.serves(generation=2)


async def test_a_killed_replica_leaves_the_route_until_another_is_ready(plane: Plane) -> None:
    await plane.deploy(echo())
    before = endpoints(await plane.serves())

    _kill_executors(plane.home)

    await plane.reaches(lambda it: it.phase is Phase.STARTING)
    assert endpoints(await plane.serves()) != before


async def test_a_replica_that_dies_again_and_again_after_serving_is_not_given_up(plane: Plane) -> None:
    await plane.deploy(echo())
    await plane.serves()

    for _ in range(3):
        _kill_executors(plane.home)
        await plane.reaches(lambda it: it.phase is Phase.STARTING)
        await plane.serves()


async def test_a_new_controller_goes_on_with_what_runs(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    async with running(Plane(store, home)) as plane:
        await plane.deploy(echo())
        before = endpoints(await plane.serves())

    async with running(Plane(store, home)) as plane:
        await until(lambda: any(it.state is ReplicaState.READY for it in plane.launcher.replicas()))
        assert endpoints(await plane.serves()) == before

    await _sweep(home)


async def test_an_app_deleted_while_no_controller_ran_is_cleared_away(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    async with running(Plane(store, home)) as plane:
        await plane.deploy(echo())
        await plane.serves()
    await store.delete(APPS, "echo")

    async with running(Plane(store, home)) as plane:
        await until(lambda: not plane.launcher.replicas())


def _kill_executors(home: Home) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if any(str(home.replicas) in argument for argument in process.info["cmdline"] or []):
            process.kill()
