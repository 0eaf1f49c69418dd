"""Tests of the controller's decisions with a fake launcher."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cornserve.app.record import (
    MAX_EXITS,
    AppStatus,
    FailureReason,
    Phase,
    ReplicaExit,
    ReplicaState,
    Route,
    RouteStatus,
)
from cornserve.app.settings import ConfigMapKeyRef
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppLoadError
from cornserve.control.deployment import Deployment
from cornserve.control.launcher.base import ExecutorGroup, GroupRefusedError, LauncherError
from cornserve.control.store.base import APPS, ROUTES, AppRecord, Record, StoreUnavailableError
from cornserve.control.store.config_map_sources import ConfigMapSources
from cornserve.control.store.sqlite_connection import StoreConnections
from cornserve.task.errors import DefinitionError
from tests.loop_clock import LoopClock
from tests.unit.control.running_controller import FakeLauncher, StoreClient, describe, running_controller
from tests.unit.fake_config_maps import FakeConfigMaps
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
    return AppSpec(source=AppSource(inline=source + "#" * padding), replicas=replicas)


async def refuse(name: str, spec: AppSpec) -> AppDescription:
    raise DefinitionError("a package is missing")


async def test_an_app_with_a_too_large_status_does_not_delay_other_apps(client: StoreClient) -> None:
    await client.deploy("large", echo("large", padding=300_000))
    await client.deploy("small", echo("small"))

    async with running_controller(client, FakeLauncher()):
        await client.wait_until_served("small")


@pytest.mark.parametrize("error", [RuntimeError("bug"), AppLoadError("no network"), DefinitionError("no app")])
async def test_an_app_that_fails_to_load_does_not_delay_other_apps(client: StoreClient, error: Exception) -> None:
    async def describe_others(name: str, spec: AppSpec) -> AppDescription:
        if name == "bad":
            raise error
        return await describe(name, spec)

    await client.deploy("bad", echo("bad"))
    await client.deploy("good", echo("good"))

    async with running_controller(client, FakeLauncher(), describe_others):
        await client.wait_until_served("good")
        await client.wait_for_status("bad", lambda status: str(error) in status.message)


async def test_an_app_that_fails_to_load_is_loaded_again(client: StoreClient) -> None:
    tries: list[str] = []

    async def describe_later(name: str, spec: AppSpec) -> AppDescription:
        tries.append(name)
        if len(tries) < 3:
            raise AppLoadError("OSError: the network is down")
        return await describe(name, spec)

    await client.deploy("echo", echo("echo"))

    async with running_controller(client, FakeLauncher(), describe_later):
        await client.wait_until_served("echo")


async def test_a_group_that_failed_to_apply_is_applied_again(client: StoreClient) -> None:
    launcher = FakeLauncher()
    launcher.failures = 2
    await client.deploy("echo", echo("echo"))

    async with running_controller(client, launcher):
        await client.wait_until_served("echo")


async def test_a_group_that_the_launcher_refuses_is_a_failure_with_its_reason(client: StoreClient) -> None:
    launcher = FakeLauncher()
    launcher.refusal = GroupRefusedError("gpuType 'h100' is unknown", FailureReason.UNKNOWN_GPU_TYPE)
    await client.deploy("echo", echo("echo"))

    async with running_controller(client, launcher):
        status = await client.wait_for_status("echo", lambda status: status.phase is Phase.FAILED)
    assert (status.reason, status.message) == (FailureReason.UNKNOWN_GPU_TYPE, "gpuType 'h100' is unknown")


async def test_the_status_has_the_reason_why_a_group_cannot_be_applied(
    client: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = FakeLauncher()
    launcher.refusal = LauncherError("exceeded quota: count/deployments.apps")
    await client.deploy("echo", echo("echo"))

    async with running_controller(client, launcher):
        status = await client.wait_for_status("echo", lambda status: "exceeded quota" in status.message)
        assert status.phase is Phase.STARTING
        assert [record.exc_info for record in caplog.records if "exceeded quota" in record.message] == [None]

        launcher.refusal = None
        await client.wait_until_served("echo")


async def test_an_app_whose_executors_gateways_cannot_find_does_not_serve(client: StoreClient) -> None:
    launcher = FakeLauncher()
    await client.deploy("echo", echo("echo"))
    async with running_controller(client, launcher):
        await client.wait_until_served("echo")
        [key] = launcher.groups
        launcher.show(key, ReplicaState.READY, message="its Service does not exist", reason="NoEndpoints")
        status = await client.wait_for_status("echo", lambda status: status.phase is Phase.STARTING)
        assert (status.serving_generation, status.unreachable) == (1, "its Service does not exist")
        assert status.message == f"waiting for {key} (its Service does not exist)"

        launcher.show(key, ReplicaState.READY)
        status = await client.wait_for_status("echo", lambda status: status.phase is Phase.SERVING)
        assert status.unreachable == ""


async def test_a_version_whose_executors_gateways_cannot_find_does_not_replace_another(client: StoreClient) -> None:
    launcher = FakeLauncher()
    await client.deploy("echo", echo("echo"))
    async with running_controller(client, launcher):
        await client.wait_until_served("echo")
        [old] = launcher.groups
        launcher.becomes_ready = False
        await client.redeploy("echo", echo("echo", "new"))
        await until(lambda: len(launcher.groups) == 2)
        [new] = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY, message="its Service does not exist", reason="NoEndpoints")
        status = await client.wait_for_status("echo", lambda status: "its Service" in status.message)
        assert (status.phase, status.serving_generation, status.unreachable) == (Phase.STARTING, 1, "")

        launcher.show(new, ReplicaState.READY)
        await client.wait_until_served("echo", generation=2)


async def test_a_new_controller_does_not_load_served_apps_again(client: StoreClient) -> None:
    launcher = FakeLauncher()
    await client.deploy("echo", echo("echo"))
    await client.deploy("rolling", echo("rolling", "old"))
    async with running_controller(client, launcher):
        await client.wait_until_served("echo")
        await client.wait_until_served("rolling")
    await client.redeploy("rolling", echo("rolling", "new"))
    running = dict(launcher.groups)

    async with running_controller(client, launcher, refuse):
        failed = await client.wait_for_status("rolling", lambda status: status.phase is Phase.FAILED)
        assert failed.serving_generation == 1
        for key in running:
            launcher.show(key, ReplicaState.READY, port=7777)
        for name in ("echo", "rolling"):
            await client.wait_for_status(
                name, lambda status: any(":7777" in str(group.endpoints) for group in status.groups)
            )
        assert launcher.groups == running


async def test_a_new_version_takes_over_when_all_its_replicas_are_ready(client: StoreClient) -> None:
    launcher = FakeLauncher(ready=False)
    async with running_controller(client, launcher):
        await client.deploy("echo", echo("echo", "old", replicas=2))
        await until(lambda: len(launcher.groups) == 1)
        (old,) = launcher.groups
        launcher.show(old, ReplicaState.READY, ReplicaState.STARTING)
        await client.wait_until_served("echo")  # One ready replica is enough for the first generation.

        await client.redeploy("echo", echo("echo", "new", replicas=2))
        await until(lambda: len(launcher.groups) == 2)
        (new,) = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY, ReplicaState.STARTING)
        status = await client.wait_for_status("echo", lambda status: sum(group.ready for group in status.groups) == 2)
        assert status.phase is Phase.STARTING
        assert status.serving_generation == 1

        launcher.show(new, ReplicaState.READY, ReplicaState.READY)
        assert list((await client.wait_until_served("echo", 2)).groups.values()) == [new]


async def test_a_new_version_with_one_replica_takes_over_from_a_version_without_replicas(client: StoreClient) -> None:
    launcher = FakeLauncher(ready=False)
    async with running_controller(client, launcher):
        await client.deploy("echo", echo("echo", "old"))
        await until(lambda: len(launcher.groups) == 1)
        (old,) = launcher.groups
        launcher.show(old, ReplicaState.READY)
        await client.wait_until_served("echo")
        launcher.show(old, ReplicaState.STARTING)

        await client.redeploy("echo", echo("echo", "new", replicas=2))
        await until(lambda: len(launcher.groups) == 2)
        (new,) = launcher.groups.keys() - {old}
        launcher.show(new, ReplicaState.READY, ReplicaState.STARTING)
        await client.wait_until_served("echo", 2)


async def test_the_status_contains_the_reason_why_executors_wait(client: StoreClient) -> None:
    launcher = FakeLauncher(ready=False)
    async with running_controller(client, launcher):
        await client.deploy("echo", echo("echo"))
        await until(lambda: len(launcher.groups) == 1)
        (key,) = launcher.groups
        launcher.show(key, ReplicaState.STARTING, message="needs 1 GPU, 0 of 1 free")

        status = await client.wait_for_status("echo", lambda status: "0 of 1 free" in status.message)

    assert status.message == f"waiting for {key} (needs 1 GPU, 0 of 1 free)"


async def test_a_new_version_with_fewer_replicas_leaves_the_served_one_unchanged() -> None:
    record: AppRecord = Record("echo", "uid", 2, 2, echo("echo", replicas=1, padding=1), AppStatus())
    specs = (await describe(record.name, record.spec)).executor_specs
    served = echo("echo", replicas=3)
    route = Route(app_uid="uid", generation=1, spec=served, shares=[1.0], specs=specs)
    record = replace(record, status=AppStatus(phase=Phase.SERVING, generation=1))
    deployment, route_record = Deployment(record), Record("echo", "route", 1, 3, route, RouteStatus())

    deployment.apply_records(record, route_record)
    await deployment.load(describe)
    deployment.apply_records(record, route_record)

    assert [group.replicas for group in deployment.groups().values()] == [3]


async def test_a_scaled_app_needs_its_new_number_of_replicas_at_once() -> None:
    record: AppRecord = Record("echo", "uid", 1, 1, echo("echo", replicas=3), AppStatus())
    deployment = Deployment(record)
    deployment.apply_records(record, None)
    await deployment.load(describe)
    deployment.apply_records(record, None)
    specs = (await describe(record.name, record.spec)).executor_specs
    route = Route(app_uid="uid", generation=1, spec=record.spec, shares=[1.0], specs=specs)
    route_record = Record("echo", "route", 1, 1, route, RouteStatus())
    deployment.apply_records(record, route_record)

    scaled = replace(record, generation=2, spec=echo("echo", replicas=1))
    deployment.apply_records(scaled, route_record)

    assert [group.replicas for group in deployment.groups().values()] == [1]


async def test_an_app_that_is_slow_to_load_does_not_delay_other_apps(client: StoreClient) -> None:
    imported = asyncio.Event()

    async def describe_slowly(name: str, spec: AppSpec) -> AppDescription:
        if name == "slow":
            await imported.wait()
        return await describe(name, spec)

    await client.deploy("slow", echo("slow"))
    await client.deploy("other", echo("other"))

    async with running_controller(client, FakeLauncher(), describe_slowly):
        await client.wait_until_served("other")
        await client.wait_for_status("slow", lambda status: status.message == "is being loaded")
        imported.set()
        await client.wait_until_served("slow")


async def test_an_app_that_is_loaded_during_a_round_does_not_serve_before_its_executors_run(
    client: StoreClient,
) -> None:
    applying, loaded = asyncio.Event(), asyncio.Event()

    class SlowLauncher(FakeLauncher):
        async def apply(self, group: ExecutorGroup) -> None:
            await super().apply(group)
            applying.set()
            await loaded.wait()

    async def describe_second_during_a_round(name: str, spec: AppSpec) -> AppDescription:
        description = await describe(name, spec)
        if name == "second":
            await applying.wait()
            loaded.set()
        return description

    await client.deploy("first", echo("first"))
    await client.deploy("second", echo("second", prefix="other"))

    async with running_controller(client, SlowLauncher(ready=False), describe_second_during_a_round):
        await client.wait_for_status("second", lambda status: status.message.startswith("waiting for"))
        assert (await client.store.list(ROUTES)).records == []


async def test_an_app_with_an_endless_import_can_be_redeployed(client: StoreClient) -> None:
    never = asyncio.Event()

    async def describe_or_hang(name: str, spec: AppSpec) -> AppDescription:
        if "# hangs" in str(spec.inline_source):
            await never.wait()
        return await describe(name, spec)

    async with running_controller(client, FakeLauncher(), describe_or_hang):
        await client.deploy("echo", AppSpec(source=AppSource(inline="# hangs")))
        await client.wait_for_status("echo", lambda status: status.message == "is being loaded")
        await client.redeploy("echo", echo("echo"))
        await client.wait_until_served("echo", 2)


async def test_a_new_controller_keeps_the_executors_of_an_app_that_it_has_not_loaded_yet(client: StoreClient) -> None:
    launcher = FakeLauncher(ready=False)
    await client.deploy("starting", echo("starting"))
    async with running_controller(client, launcher):
        await client.wait_for_status("starting", lambda status: len(status.groups) == 1)
    running = dict(launcher.groups)
    imported = asyncio.Event()

    async def describe_slowly(name: str, spec: AppSpec) -> AppDescription:
        if name == "starting":
            await imported.wait()
        return await describe(name, spec)

    await client.deploy("other", echo("other", "other"))
    async with running_controller(client, launcher, describe_slowly):
        await until(lambda: len(launcher.groups) == 2)
        assert running.items() < launcher.groups.items()
        imported.set()
        for key in launcher.groups:
            launcher.show(key, ReplicaState.READY)
        await client.wait_until_served("starting")
        await client.wait_until_served("other")
    assert running.items() < launcher.groups.items()


async def test_a_changed_number_of_replicas_does_not_start_a_new_version(client: StoreClient) -> None:
    described: list[str] = []

    async def describe_once(name: str, spec: AppSpec) -> AppDescription:
        described.append(name)
        return await (describe if len(described) == 1 else refuse)(name, spec)

    launcher = FakeLauncher()
    async with running_controller(client, launcher, describe_once):
        await client.deploy("echo", echo("echo"))
        await client.wait_until_served("echo")

        for generation, replicas in ((2, 3), (3, 1)):
            await client.redeploy("echo", echo("echo", replicas=replicas))
            route = await client.wait_until_served("echo", generation)
            assert route.spec.replicas == replicas
            (group,) = launcher.groups.values()
            assert group.replicas == replicas


async def test_while_a_record_is_damaged_no_executor_of_an_unknown_app_is_stopped(
    client: StoreClient, tmp_path: Path
) -> None:
    launcher = FakeLauncher()
    await client.deploy("damaged", echo("damaged", prefix="a"))
    await client.deploy("echo", echo("echo", prefix="b"))
    async with running_controller(client, launcher):
        await client.wait_until_served("damaged")
        await client.wait_until_served("echo")
    groups = set(launcher.groups)
    assert len(groups) == 2
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("UPDATE records SET spec = '{' WHERE name = 'damaged'")

    async with running_controller(client, launcher):
        await client.redeploy("echo", echo("echo", prefix="b", replicas=2))
        await client.wait_until_served("echo", generation=2)
        assert set(launcher.groups) == groups

        await client.store.delete(APPS, "damaged")
        await until(lambda: len(launcher.groups) == 1)


async def test_a_damaged_record_does_not_keep_the_executors_of_other_apps(client: StoreClient, tmp_path: Path) -> None:
    launcher = FakeLauncher()
    await client.deploy("damaged", echo("damaged", prefix="a"))
    await client.deploy("echo", echo("echo", prefix="b"))
    async with running_controller(client, launcher):
        await client.wait_until_served("damaged")
        await client.wait_until_served("echo")
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("UPDATE records SET spec = '{' WHERE name = 'damaged'")

    async with running_controller(client, launcher):
        await client.redeploy("echo", echo("echo", prefix="c"))
        await client.wait_until_served("echo", generation=2)
        await until(lambda: len(launcher.groups) == 2)
        assert {owner.name for group in launcher.groups.values() for owner in group.owners} == {"damaged", "echo"}


async def test_a_controller_without_a_readable_store_keeps_executors_and_continues_when_it_is_readable(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch, clock: LoopClock
) -> None:
    launcher = FakeLauncher()
    await client.deploy("echo", echo("echo"))
    async with running_controller(client, launcher):
        await client.wait_until_served("echo")
        failures = 0

        def fail(*_: object) -> None:
            nonlocal failures
            failures += 1
            raise StoreUnavailableError("the disk is broken")

        with monkeypatch.context() as patch:
            patch.setattr(client.store, "list", fail)
            patch.setattr(StoreConnections, "is_current", False)  # ends the watch
            await clock.advance_until(lambda: failures >= 3, step=0.1)
            assert len(launcher.groups) == 1
        await client.redeploy("echo", echo("echo", replicas=2))
        await clock.advance_during(client.wait_until_served("echo", generation=2), step=0.1)


async def test_a_changed_config_map_is_a_new_version_of_the_same_generation(client: StoreClient) -> None:
    config_maps = FakeConfigMaps()
    launcher = FakeLauncher()
    client.store = ConfigMapSources(client.store, config_maps)
    reference = AppSpec(source=AppSource(config_map_key_ref=ConfigMapKeyRef(name="brief", key="brief.py")))
    async with running_controller(client, launcher):
        await client.deploy("echo", reference)
        failed = await client.wait_for_status("echo", lambda status: status.phase is Phase.FAILED)
        assert failed.reason is FailureReason.SOURCE_NOT_FOUND
        assert "create a ConfigMap 'brief' with the key 'brief.py'" in failed.message

        for prefix in ("old", "new"):
            source = str(echo("echo", prefix).inline_source)
            config_maps.put("brief", brief=source)
            await client.wait_until_source("echo", source)

        status = await client.wait_for_status("echo", lambda status: status.phase is Phase.SERVING)
        assert status.generation == 1


async def test_the_last_exits_of_executors_stay_in_the_status(client: StoreClient) -> None:
    def exit(number: int) -> ReplicaExit:
        time = datetime(2026, 1, 1, 10, 0, number, tzinfo=UTC)
        return ReplicaExit(replica=f"echo-{number:02}", group=key, time=time, message="killed by signal 9 (Killed)")

    first, second = FakeLauncher(), FakeLauncher()
    await client.deploy("a", echo("a"))
    async with running_controller(client, first):
        await client.wait_until_served("a")
        [key] = first.groups
        first.last_exits[key] = [exit(1)]
        first.show(key, ReplicaState.READY, port=2)
        await client.wait_for_status("a", lambda status: status.exits == [exit(1)])
    second.last_exits[key] = [exit(number) for number in range(2, MAX_EXITS + 1)]
    async with running_controller(client, second):
        await client.wait_for_status("a", lambda status: len(status.exits) == MAX_EXITS)
        second.last_exits[key] = [exit(MAX_EXITS + 1)]
        second.show(key, ReplicaState.READY, port=3)
        expected = [exit(number) for number in range(2, MAX_EXITS + 2)]
        await client.wait_for_status("a", lambda status: status.exits == expected)
