"""The controller's judgement, with a launcher that starts nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import AppSpec, AppStatus, Phase, ReplicaState, Route
from cornserve.control.controller import Controller
from cornserve.control.deployment import AppVersion, Deployment
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Replica, ReplicaId
from cornserve.control.store.base import APPS, AppRecord, Record, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.task.errors import DefinitionError
from tests.waiting import until


def echo(name: str, prefix: str = "", *, replicas: int = 1, padding: int = 0) -> AppSpec:
    source = f"""
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Echo(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask(prefix={prefix!r})

    def invoke(self, request: EchoRequest) -> EchoResponse:
        return self.echo.invoke(request)

app = App(name={name!r}, paths=[Echo()])
"""
    return AppSpec(source=source + "#" * padding, replicas=replicas)


class PaperLauncher:
    """Does as it is told only on paper; what becomes ready is the test's to say."""

    def __init__(self, *, ready: bool = True) -> None:
        self.groups: dict[GroupKey, ExecutorGroup] = {}
        self.failures = 0
        """How many calls of `apply` fail."""
        self._ready = ready
        """Whether what is applied is ready at once."""
        self._replicas: dict[GroupKey, list[Replica]] = {}
        self._changed = asyncio.Event()

    async def start(self) -> None: ...

    async def apply(self, group: ExecutorGroup) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no more processes")
        is_new = self.groups.get(group.key) != group
        self.groups[group.key] = group
        if self._ready and is_new:
            self.show(group.key, *[ReplicaState.READY] * group.replicas)

    async def delete(self, key: GroupKey) -> None:
        self.groups.pop(key, None)
        self._replicas.pop(key, None)

    async def prune(self, keep: set[GroupKey]) -> None:
        for key in self.groups.keys() - keep:
            await self.delete(key)

    def show(self, key: GroupKey, *states: ReplicaState, message: str = "", port: int = 1) -> None:
        self._replicas[key] = [
            Replica(ReplicaId(f"{key}-{index}"), key, state, message, f"{key}:{port + index}")
            for index, state in enumerate(states)
        ]
        self._changed.set()

    def replicas(self) -> list[Replica]:
        return [replica for replicas in self._replicas.values() for replica in replicas]

    async def watch(self) -> AsyncIterator[list[Replica]]:
        while True:
            yield self.replicas()
            await self._changed.wait()
            self._changed.clear()

    async def logs(self, replica: ReplicaId, lines: int) -> list[str]:
        return []

    async def close(self) -> None: ...


class Plane:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def deploy(self, name: str, spec: AppSpec) -> None:
        await self.store.create(APPS, name, spec)

    async def redeploy(self, name: str, spec: AppSpec) -> None:
        record = await self.store.get(APPS, name)
        await self.store.update_spec(APPS, name, spec, record.version)

    async def reaches(self, name: str, condition: Callable[[AppStatus], bool]) -> AppStatus:
        async def holds() -> bool:
            return condition((await self.store.get(APPS, name)).status)

        await until(holds)
        return (await self.store.get(APPS, name)).status

    async def serves(self, name: str, generation: int = 1) -> Route:
        status = await self.reaches(name, lambda it: it.phase is Phase.SERVING and it.generation == generation)
        assert status.route is not None
        return status.route


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plane]:
    monkeypatch.setattr("cornserve.control.controller.RETRY_SECONDS", 0.02)
    store = await SqliteStore.open(tmp_path / "state.db")
    yield Plane(store)
    await store.close()


@asynccontextmanager
async def controlling(plane: Plane, launcher: PaperLauncher) -> AsyncIterator[None]:
    running = asyncio.create_task(Controller(plane.store, launcher).run())
    yield
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_app_whose_status_is_too_large_holds_up_no_other(plane: Plane) -> None:
    await plane.deploy("large", echo("large", padding=300_000))
    await plane.deploy("small", echo("small"))

    async with controlling(plane, PaperLauncher()):
        await plane.serves("small")


@pytest.mark.parametrize("error", [RuntimeError("no network"), SystemExit(3), DefinitionError("no app")])
async def test_an_app_whose_code_fails_holds_up_no_other(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def load_others(name: str, spec: AppSpec, module: str) -> App:
        if name == "bad":
            raise error
        return load_app(name, spec, module)

    monkeypatch.setattr("cornserve.control.deployment.load_app", load_others)
    await plane.deploy("bad", echo("bad"))
    await plane.deploy("good", echo("good"))

    async with controlling(plane, PaperLauncher()):
        await plane.serves("good")
        await plane.reaches("bad", lambda it: str(error) in it.message)


async def test_an_app_whose_code_fails_is_tried_again(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def load_later(name: str, spec: AppSpec, module: str) -> App:
        tries.append(module)
        if len(tries) < 3:
            raise OSError("the network is down")
        return load_app(name, spec, module)

    monkeypatch.setattr("cornserve.control.deployment.load_app", load_later)
    await plane.deploy("echo", echo("echo"))

    async with controlling(plane, PaperLauncher()):
        await plane.serves("echo")


async def test_a_group_that_could_not_be_applied_is_applied_again(plane: Plane) -> None:
    launcher = PaperLauncher()
    launcher.failures = 2
    await plane.deploy("echo", echo("echo"))

    async with controlling(plane, launcher):
        await plane.serves("echo")


async def test_what_is_served_is_not_imported_again_by_a_new_controller(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, spec: AppSpec, module: str) -> App:
        raise DefinitionError("a package is missing by now")

    launcher = PaperLauncher()
    await plane.deploy("echo", echo("echo"))
    await plane.deploy("rolling", echo("rolling", "old"))
    async with controlling(plane, launcher):
        await plane.serves("echo")
        await plane.serves("rolling")
    await plane.redeploy("rolling", echo("rolling", "new"))
    running = dict(launcher.groups)

    monkeypatch.setattr("cornserve.control.deployment.load_app", refuse)
    async with controlling(plane, launcher):
        failed = await plane.reaches("rolling", lambda it: it.phase is Phase.FAILED)
        assert failed.route is not None
        for key in running:
            launcher.show(key, ReplicaState.READY, port=7777)
        for name in ("echo", "rolling"):
            await plane.reaches(name, lambda it: it.route is not None and ":7777" in str(it.route.endpoints))
        assert launcher.groups == running


async def test_a_new_version_takes_over_when_all_its_replicas_are_ready(plane: Plane) -> None:
    launcher = PaperLauncher(ready=False)
    async with controlling(plane, launcher):
        await plane.deploy("echo", echo("echo", "old", replicas=2))
        await until(lambda: len(launcher.groups) == 1)
        (old,) = launcher.groups
        launcher.show(old, ReplicaState.READY, ReplicaState.STARTING)
        await plane.serves("echo")  # One is better than none.

        await plane.redeploy("echo", echo("echo", "new", replicas=2))
        await until(lambda: len(launcher.groups) == 2)
        (new,) = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY, ReplicaState.STARTING)
        status = await plane.reaches("echo", lambda it: sum(group.ready for group in it.groups) == 2)
        assert status.phase is Phase.STARTING
        assert status.route is not None
        assert status.route.generation == 1

        launcher.show(new, ReplicaState.READY, ReplicaState.READY)
        assert list((await plane.serves("echo", 2)).endpoints) == [new]


async def test_a_new_version_takes_over_with_one_replica_from_one_that_has_none(plane: Plane) -> None:
    launcher = PaperLauncher(ready=False)
    async with controlling(plane, launcher):
        await plane.deploy("echo", echo("echo", "old"))
        await until(lambda: len(launcher.groups) == 1)
        (old,) = launcher.groups
        launcher.show(old, ReplicaState.READY)
        await plane.serves("echo")
        launcher.show(old, ReplicaState.STARTING)

        await plane.redeploy("echo", echo("echo", "new", replicas=2))
        await until(lambda: len(launcher.groups) == 2)
        (new,) = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY, ReplicaState.STARTING)
        await plane.serves("echo", 2)


async def test_an_app_says_what_its_executors_wait_for(plane: Plane) -> None:
    launcher = PaperLauncher(ready=False)
    async with controlling(plane, launcher):
        await plane.deploy("echo", echo("echo"))
        await until(lambda: len(launcher.groups) == 1)
        (key,) = launcher.groups
        launcher.show(key, ReplicaState.STARTING, message="needs 1 GPU, 0 of 1 free")

        status = await plane.reaches("echo", lambda it: "0 of 1 free" in it.message)

    assert status.message == f"waiting for {key} (needs 1 GPU, 0 of 1 free)"


async def test_a_version_that_wants_fewer_replicas_takes_none_from_the_served_one() -> None:
    record: AppRecord = Record("echo", "uid", 2, 2, echo("echo", replicas=1, padding=1), AppStatus())
    specs = AppVersion.load(record).executor_specs
    served = echo("echo", replicas=3)
    route = Route(generation=1, spec=served, shares=[1.0], specs=specs, endpoints={key: [] for key in specs})
    record = replace(record, status=AppStatus(phase=Phase.SERVING, generation=1, route=route))
    deployment = Deployment(record)

    deployment.apply_record(record)
    await deployment.load()

    assert [group.replicas for group in deployment.groups().values()] == [3]


async def test_an_app_that_is_slow_to_import_holds_up_no_other(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = threading.Event()

    def load_slowly(name: str, spec: AppSpec, module: str) -> App:
        if name == "slow":
            imported.wait()
        return load_app(name, spec, module)

    monkeypatch.setattr("cornserve.control.deployment.load_app", load_slowly)
    await plane.deploy("slow", echo("slow"))
    await plane.deploy("other", echo("other"))

    async with controlling(plane, PaperLauncher()):
        await plane.serves("other")
        await plane.reaches("slow", lambda it: it.message == "is being loaded")
        imported.set()
        await plane.serves("slow")


async def test_an_app_whose_import_never_ends_is_replaced(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def load_or_hang(name: str, spec: AppSpec, module: str) -> App:
        if "# hangs" in str(spec.source):
            never.wait()
        return load_app(name, spec, module)

    monkeypatch.setattr("cornserve.control.deployment.load_app", load_or_hang)
    async with controlling(plane, PaperLauncher()):
        await plane.deploy("echo", AppSpec(source="# hangs"))
        await plane.reaches("echo", lambda it: it.message == "is being loaded")
        await plane.redeploy("echo", echo("echo"))
        await plane.serves("echo", 2)
    never.set()


async def test_what_an_app_has_started_is_left_alone_until_a_new_controller_has_loaded_it(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = PaperLauncher(ready=False)
    await plane.deploy("starting", echo("starting"))
    async with controlling(plane, launcher):
        await plane.reaches("starting", lambda it: len(it.groups) == 1)
    running = dict(launcher.groups)
    imported = threading.Event()

    def load_slowly(name: str, spec: AppSpec, module: str) -> App:
        if name == "starting":
            imported.wait()
        return load_app(name, spec, module)

    monkeypatch.setattr("cornserve.control.deployment.load_app", load_slowly)
    await plane.deploy("other", echo("other", "other"))
    async with controlling(plane, launcher):
        await until(lambda: len(launcher.groups) == 2)
        assert running.items() < launcher.groups.items()
        imported.set()
        for key in launcher.groups:
            launcher.show(key, ReplicaState.READY)
        await plane.serves("starting")
        await plane.serves("other")
    assert running.items() < launcher.groups.items()


async def test_other_replicas_are_no_other_version(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = PaperLauncher()
    async with controlling(plane, launcher):
        await plane.deploy("echo", echo("echo"))
        await plane.serves("echo")

        def refuse(name: str, spec: AppSpec, module: str) -> App:
            raise DefinitionError("is not imported again")

        monkeypatch.setattr("cornserve.control.deployment.load_app", refuse)
        for generation, replicas in ((2, 3), (3, 1)):
            await plane.redeploy("echo", echo("echo", replicas=replicas))
            route = await plane.serves("echo", generation)
            assert route.spec.replicas == replicas
            (group,) = launcher.groups.values()
            assert group.replicas == replicas
