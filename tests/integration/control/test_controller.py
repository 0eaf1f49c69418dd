"""The controller with a real store, a real launcher and real executor processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from cornserve.app.record import AppStatus, Phase, ReplicaState
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.describe import describe_app
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.controller import Controller
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.store.base import APPS, AppRecord, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.limits import Limits
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
    return AppSpec(source=AppSource(inline=source), replicas=replicas)


class ControlPlane:
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

    async def wait_for_status(self, condition: Callable[[AppStatus], bool], name: str = "echo") -> AppStatus:
        found: list[AppStatus] = []

        async def holds() -> bool:
            found[:] = [await self.status(name)]
            return condition(found[0])

        await until(holds, seconds=60)
        return found[0]

    async def wait_until_served(self, generation: int = 1, name: str = "echo") -> AppStatus:
        return await self.wait_for_status(
            lambda status: status.phase is Phase.SERVING and status.generation == generation, name
        )


def endpoints(status: AppStatus) -> set[str]:
    return {endpoint for group in status.groups for endpoint in group.endpoints}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@asynccontextmanager
async def running(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    await control_plane.launcher.start()
    fork_server = ForkServer()
    describe = partial(describe_app, fork_server, Limits())
    controller_task = asyncio.create_task(Controller(control_plane.store, control_plane.launcher, describe).run())
    yield control_plane
    assert not controller_task.done()
    controller_task.cancel()
    await asyncio.gather(controller_task, return_exceptions=True)
    await fork_server.close()
    await control_plane.launcher.close()


@pytest.fixture
async def control_plane(store: Store, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    home = Home(tmp_path)
    async with running(ControlPlane(store, home)) as control_plane:
        yield control_plane
    await _end_all_replicas(home)


async def _end_all_replicas(home: Home) -> None:
    launcher = LocalLauncher(home, DeviceSlots.cpu(2), drain_seconds=5)
    await launcher.start()
    await launcher.prune(set())
    await until(lambda: not launcher.replicas())
    await launcher.close()


async def test_a_stored_app_is_served(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo(replicas=2))

    status = await control_plane.wait_until_served()

    status = await control_plane.wait_for_status(lambda status: len(endpoints(status)) == 2)
    (group,) = status.groups
    assert (group.wanted, group.ready) == (2, 2)


@pytest.mark.slow
async def test_apps_with_equal_unit_tasks_share_executors(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo(name="one"), "one")
    await control_plane.deploy(echo(name="two"), "two")
    await control_plane.deploy(echo("other", name="three"), "three")

    one, two, three = [endpoints(await control_plane.wait_until_served(name=name)) for name in ("one", "two", "three")]

    assert one == two
    assert not one & three


@pytest.mark.slow
async def test_deleting_one_of_two_apps_leaves_the_shared_executor(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo(name="one"), "one")
    await control_plane.deploy(echo(name="two"), "two")
    before = endpoints(await control_plane.wait_until_served(name="one")) | endpoints(
        await control_plane.wait_until_served(name="two")
    )

    await control_plane.store.delete(APPS, "one")
    await control_plane.deploy(echo("other", name="three"), "three")
    await control_plane.wait_until_served(name="three")

    assert endpoints(await control_plane.status("two")) == before


@pytest.mark.slow
async def test_the_executors_of_a_deleted_app_end(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo())
    await control_plane.wait_until_served()

    await control_plane.store.delete(APPS, "echo")

    await until(lambda: not control_plane.launcher.replicas())


@pytest.mark.slow
async def test_an_app_that_cannot_start_reports_the_reason_and_leaves_no_process(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo(fail_start="no such model"))

    status = await control_plane.wait_for_status(lambda status: status.phase is Phase.FAILED)

    assert "did not start" in status.message
    assert "RuntimeError: no such model" in status.logs[-1]
    await until(lambda: not control_plane.launcher.replicas())
    assert status.serving_generation is None


async def test_an_app_that_cannot_be_loaded_reports_the_reason(control_plane: ControlPlane) -> None:
    await control_plane.deploy(AppSpec(source=AppSource(inline="import nothing_like_this")))

    status = await control_plane.wait_for_status(lambda status: status.phase is Phase.FAILED)

    assert "No module named 'nothing_like_this'" in status.message


async def test_a_new_version_takes_over_when_it_is_ready(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo("old"))
    old = endpoints(await control_plane.wait_until_served())

    await control_plane.redeploy(echo("new", start_seconds=1.0))
    starting = await control_plane.wait_for_status(
        lambda status: status.phase is Phase.STARTING and status.generation == 2
    )
    assert endpoints(starting) == old
    new = endpoints(await control_plane.wait_until_served(generation=2))

    assert not new & old
    await until(lambda: {replica.endpoint for replica in control_plane.launcher.replicas()} == new)


async def test_a_new_version_that_fails_leaves_the_old_one_serving(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo("old"))
    old = endpoints(await control_plane.wait_until_served())

    await control_plane.redeploy(echo("new", fail_start="broken"))
    status = await control_plane.wait_for_status(lambda status: status.phase is Phase.FAILED)

    assert endpoints(status) == old
    await until(lambda: {replica.endpoint for replica in control_plane.launcher.replicas()} == old)


@pytest.mark.slow
async def test_a_failed_app_can_be_redeployed_as_a_new_generation(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo(fail_start="broken"))
    await control_plane.wait_for_status(lambda status: status.phase is Phase.FAILED)

    await control_plane.redeploy(echo())

    await control_plane.wait_until_served(generation=2)


async def test_a_killed_replica_leaves_the_route_until_another_is_ready(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo())
    before = endpoints(await control_plane.wait_until_served())

    _kill_executors(control_plane.home)

    await control_plane.wait_for_status(lambda status: status.phase is Phase.STARTING)
    assert endpoints(await control_plane.wait_until_served()) != before


@pytest.mark.slow
async def test_a_replica_that_dies_repeatedly_after_serving_is_always_replaced(control_plane: ControlPlane) -> None:
    await control_plane.deploy(echo())
    await control_plane.wait_until_served()

    for _ in range(3):
        _kill_executors(control_plane.home)
        await control_plane.wait_for_status(lambda status: status.phase is Phase.STARTING)
        await control_plane.wait_until_served()


async def test_a_new_controller_adopts_running_executors(store: Store, tmp_path: Path) -> None:
    home = Home(tmp_path)
    async with running(ControlPlane(store, home)) as control_plane:
        await control_plane.deploy(echo())
        before = endpoints(await control_plane.wait_until_served())

    async with running(ControlPlane(store, home)) as control_plane:
        await until(lambda: any(replica.state is ReplicaState.READY for replica in control_plane.launcher.replicas()))
        assert {replica.endpoint for replica in control_plane.launcher.replicas()} == before
        # The status without ready replicas may be written last.
        await control_plane.wait_for_status(lambda status: endpoints(status) == before)

    await _end_all_replicas(home)


@pytest.mark.slow
async def test_executors_of_an_app_deleted_without_a_controller_are_ended_by_the_next_controller(
    store: Store, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    async with running(ControlPlane(store, home)) as control_plane:
        await control_plane.deploy(echo())
        await control_plane.wait_until_served()
    await store.delete(APPS, "echo")

    async with running(ControlPlane(store, home)) as control_plane:
        await until(lambda: not control_plane.launcher.replicas())


def _kill_executors(home: Home) -> None:
    for process in psutil.process_iter(["cmdline"]):
        if any(str(home.replicas) in argument for argument in process.info["cmdline"] or []):
            process.kill()
