"""Tests for every implementation of the `Launcher` interface.

The tests of a launcher derive a class from `LauncherConformance` and define the fixture `site`: an environment without
replicas, which stops all replicas after the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, GroupKey, Launcher, Replica, ReplicaId
from cornserve.task.spec import ExecutorSpec
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo.task import EchoRequest, EchoTask
from tests.executor_caller import calling
from tests.waiting import until

TIMEOUT_SECONDS = 60.0
"""A test fails if a replica takes this long. Executors start within seconds."""

ECHO = EchoTask().executor_spec()
OTHER = EchoTask(prefix="other: ").executor_spec()
BROKEN = EchoTask(fail_start="there are no words").executor_spec()


class LaunchSite(Protocol):
    def open(self) -> AbstractAsyncContextManager[Launcher]:
        """Starts a launcher. Its replicas keep running after it is closed: the next launcher adopts them."""

    async def kill(self, replica: ReplicaId) -> None:
        """Kills the replica's process."""


Condition = Callable[[list[Replica]], bool]


@asynccontextmanager
async def watching(launcher: Launcher) -> AsyncIterator[AsyncIterator[list[Replica]]]:
    """Closes the watch at the end of the block."""
    watch = launcher.watch()
    try:
        yield watch
    finally:
        if isinstance(watch, AsyncGenerator):
            await watch.aclose()


async def observed(launcher: Launcher, condition: Condition) -> list[Replica]:
    """Waits until the condition holds and returns the replicas."""
    async with asyncio.timeout(TIMEOUT_SECONDS), watching(launcher) as watch:
        async for replicas in watch:
            if condition(replicas):
                return replicas
    raise AssertionError("the watch has ended")


def ready(count: int) -> Condition:
    """Holds for exactly `count` replicas, all of them ready."""
    return lambda replicas: [replica.state for replica in replicas] == [ReplicaState.READY] * count


def ready_groups(replicas: list[Replica]) -> set[GroupKey]:
    return {replica.group for replica in replicas if replica.state is ReplicaState.READY}


def failed(replicas: list[Replica]) -> bool:
    return any(replica.state is ReplicaState.FAILED for replica in replicas)


def none(replicas: list[Replica]) -> bool:
    return not replicas


def ids(replicas: list[Replica]) -> set[ReplicaId]:
    return {replica.id for replica in replicas}


async def started(launcher: Launcher, spec: ExecutorSpec = ECHO, replicas: int = 1) -> list[Replica]:
    await launcher.apply(ExecutorGroup(spec, replicas))
    return await observed(launcher, ready(replicas))


async def events(replica: Replica, text: str, seconds: float = 0) -> AsyncIterator[pb.Event]:
    """Invokes the replica and yields the events: chunks with words, then the end."""
    assert replica.endpoint is not None
    request = EchoRequest(text=text, seconds=seconds).model_dump_json().encode()
    start = pb.Start(request_id=text, request=request, outputs=["words"])
    async with calling(replica.endpoint) as caller:
        caller.send(pb.Command(call=1, start=start))
        caller.finish()
        async for event in caller:
            yield event


async def invoke(replica: Replica, text: str) -> pb.End:
    return [event async for event in events(replica, text)][-1].end


class LauncherConformance:
    @pytest.fixture
    async def launcher(self, site: LaunchSite) -> AsyncIterator[Launcher]:
        async with site.open() as launcher:
            yield launcher

    # Starting and scaling

    async def test_a_new_site_has_no_replicas(self, launcher: Launcher) -> None:
        assert launcher.replicas() == []

    async def test_a_starting_replica_reports_its_activity_and_responds_when_ready(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(EchoTask(start_seconds=2).executor_spec(), 1))
        [busy] = await observed(launcher, lambda replicas: replicas[0].message == "loading words")
        assert busy.state is ReplicaState.STARTING
        [replica] = await observed(launcher, ready(1))
        assert replica.id == busy.id
        assert (await invoke(replica, "hello")).code == pb.CODE_OK

    async def test_applying_a_group_again_changes_nothing(self, launcher: Launcher) -> None:
        before = await started(launcher)
        await launcher.apply(ExecutorGroup(ECHO, 1))
        assert launcher.replicas() == before

    async def test_groups_are_scaled_independently_and_ready_replicas_stay(self, launcher: Launcher) -> None:
        [first] = await started(launcher)
        await launcher.apply(ExecutorGroup(ECHO, 2))
        await launcher.apply(ExecutorGroup(OTHER, 1))
        replicas = await observed(launcher, ready(3))
        assert first in replicas
        assert sorted(replica.group for replica in replicas) == sorted([ECHO.key, ECHO.key, OTHER.key])
        await launcher.apply(ExecutorGroup(ECHO, 1))
        assert {replica.group for replica in await observed(launcher, ready(2))} == {ECHO.key, OTHER.key}

    async def test_a_group_is_scaled_to_zero_and_back(self, launcher: Launcher) -> None:
        before = await started(launcher)
        await launcher.apply(ExecutorGroup(ECHO, 0))
        await observed(launcher, none)
        assert not ids(await started(launcher)) & ids(before)

    async def test_every_watcher_sees_the_newest_state(self, launcher: Launcher) -> None:
        seen = asyncio.gather(*(observed(launcher, ready(1)) for _ in range(3)))
        replicas = await started(launcher)
        assert await seen == [replicas] * 3

    # Stopping

    async def test_a_deleted_group_finishes_what_is_in_flight(self, launcher: Launcher) -> None:
        [replica] = await started(launcher)
        invocation = events(replica, "first second", seconds=4)
        assert (await anext(invocation)).chunk.item == b'"first"'
        await launcher.delete(replica.group)
        await observed(launcher, lambda replicas: [replica.state for replica in replicas] == [ReplicaState.DRAINING])
        assert [event async for event in invocation][-1].end.code == pb.CODE_OK
        await observed(launcher, none)

    async def test_a_draining_replica_rejects_new_invocations(self, launcher: Launcher) -> None:
        [replica] = await started(launcher)
        invocation = events(replica, "first second", seconds=4)
        await anext(invocation)
        await launcher.delete(replica.group)
        while (end := await invoke(replica, "too late")).code == pb.CODE_OK:
            pass  # The replica has not received the signal yet.
        assert end.code == pb.CODE_UNAVAILABLE
        assert [event async for event in invocation][-1].end.code == pb.CODE_OK

    async def test_a_group_is_deleted_while_it_starts(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(EchoTask(start_seconds=1000).executor_spec(), 1))
        [replica] = await observed(launcher, lambda replicas: replicas[0].message == "loading words")
        await launcher.delete(replica.group)
        await observed(launcher, none)

    async def test_deleting_is_idempotent(self, launcher: Launcher) -> None:
        [replica] = await started(launcher)
        for _ in range(2):
            await launcher.delete(replica.group)
        await observed(launcher, none)
        await launcher.delete(replica.group)
        await launcher.delete(GroupKey("unknown"))
        assert launcher.replicas() == []

    @pytest.mark.slow
    async def test_a_group_that_is_applied_while_it_drains_gets_new_replicas(self, launcher: Launcher) -> None:
        before = await started(launcher)
        await launcher.delete(before[0].group)
        assert not ids(await started(launcher)) & ids(before)

    @pytest.mark.slow
    async def test_prune_deletes_all_groups_that_are_not_kept(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(ECHO, 1))
        await launcher.apply(ExecutorGroup(OTHER, 1))
        await launcher.apply(ExecutorGroup(BROKEN, 1))
        await observed(launcher, failed)
        await launcher.prune({GroupKey(OTHER.key)})
        [replica] = await observed(launcher, ready(1))
        assert replica.group == OTHER.key

    # Healing

    async def test_a_dead_replica_is_replaced_by_a_replica_with_a_new_id(
        self, launcher: Launcher, site: LaunchSite
    ) -> None:
        [dead, other] = await started(launcher, replicas=2)
        await site.kill(dead.id)
        replicas = await observed(launcher, lambda replicas: dead.id not in ids(replicas) and ready(2)(replicas))
        assert other in replicas
        assert [replica.failures for replica in replicas] == [0, 0]

    async def test_the_exit_of_a_replica_is_known_after_its_replacement(
        self, launcher: Launcher, site: LaunchSite
    ) -> None:
        [dead, _] = await started(launcher, replicas=2)
        await site.kill(dead.id)
        await observed(launcher, lambda replicas: dead.id not in ids(replicas) and ready(2)(replicas))
        [exit] = launcher.exits(dead.group)
        assert (exit.replica, exit.group) == (dead.id, dead.group)
        assert "signal 9 (Killed)" in exit.message
        assert "\n".join(await launcher.logs(dead.id, 100))

    async def test_a_replica_that_was_asked_to_stop_is_no_exit(self, launcher: Launcher) -> None:
        [replica] = await started(launcher)
        await launcher.apply(ExecutorGroup(ECHO, 0))
        await observed(launcher, none)
        assert not launcher.exits(replica.group)

    async def test_a_replica_that_fails_to_start_has_a_reason_and_a_log(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(BROKEN, 1))
        [replica] = await observed(launcher, failed)
        assert (replica.failures, replica.cannot_start) == (1, False)
        assert replica.endpoint is None
        assert "status 1" in replica.message
        assert "there are no words" in replica.message
        assert "there are no words" in "\n".join(await launcher.logs(replica.id, 100))

    async def test_invalid_settings_are_reported_as_the_reason(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(ExecutorSpec(executor="echo", config={"colour": "red"}), 1))
        [replica] = await observed(launcher, failed)
        assert "colour: is not a known field" in replica.message
        assert replica.cannot_start

    async def test_consecutive_failures_are_counted_and_their_logs_kept(self, launcher: Launcher) -> None:
        await launcher.apply(ExecutorGroup(BROKEN, 1))
        [first] = await observed(launcher, failed)
        [third] = await observed(launcher, lambda replicas: failed(replicas) and replicas[0].failures == 3)
        assert third.id != first.id
        assert "there are no words" in "\n".join(await launcher.logs(first.id, 100))

    # Replacing a launcher

    async def test_a_new_launcher_adopts_running_replicas(self, site: LaunchSite) -> None:
        async with site.open() as launcher:
            before = await started(launcher)
        async with site.open() as launcher:
            assert ids(launcher.replicas()) == ids(before)
            await launcher.apply(ExecutorGroup(ECHO, 1))
            assert await observed(launcher, ready(1)) == before
            assert (await invoke(before[0], "hello")).code == pb.CODE_OK

    @pytest.mark.slow
    async def test_a_new_launcher_replaces_adopted_replicas_that_die(self, site: LaunchSite) -> None:
        async with site.open() as launcher:
            [dead] = await started(launcher)
        async with site.open() as launcher:
            await started(launcher)
            await site.kill(dead.id)
            [replica] = await observed(launcher, lambda replicas: dead.id not in ids(replicas) and ready(1)(replicas))
            assert (await invoke(replica, "hello")).code == pb.CODE_OK

    async def test_a_replica_that_died_without_a_launcher_is_replaced_by_the_next_launcher(
        self, site: LaunchSite
    ) -> None:
        async with site.open() as launcher:
            [dead] = await started(launcher)
        await site.kill(dead.id)
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            await observed(launcher, lambda replicas: dead.id not in ids(replicas) and ready(1)(replicas))

    @pytest.mark.slow
    async def test_a_new_launcher_scales_adopted_replicas(self, site: LaunchSite) -> None:
        async with site.open() as launcher:
            before = await started(launcher, replicas=2)
        async with site.open() as launcher:
            assert ids(await started(launcher, replicas=1)) < ids(before)

    async def test_a_new_launcher_prunes_unwanted_replicas(self, site: LaunchSite) -> None:
        async with site.open() as launcher:
            await started(launcher)
        async with site.open() as launcher:
            await launcher.prune(set())
            await observed(launcher, none)

    async def test_a_launcher_is_replaced_while_a_replica_starts(self, site: LaunchSite) -> None:
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
        async with site.open() as launcher:
            await started(launcher)

    # Logs

    async def test_the_last_lines_of_a_log_are_read(self, launcher: Launcher) -> None:
        [replica] = await started(launcher)

        async def log_ends_with_ready() -> bool:
            return [line.endswith(" ready") for line in await launcher.logs(replica.id, 1)] == [True]

        await until(log_ends_with_ready)

    async def test_an_unknown_replica_has_no_log(self, launcher: Launcher) -> None:
        assert await launcher.logs(ReplicaId("unknown"), 10) == []
        assert await launcher.logs(ReplicaId("../../unknown"), 10) == []
