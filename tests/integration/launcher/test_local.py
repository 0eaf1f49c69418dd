"""The local launcher: conformance, and its handling of processes."""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from socket import create_connection
from tempfile import NamedTemporaryFile

import psutil
import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup, Launcher, Replica, ReplicaId
from cornserve.control.launcher.local import process_monitor, replica_supervisor
from cornserve.control.launcher.local.leaked_shared_memory import files_mapped_by
from cornserve.control.launcher.local.process_group import ProcessGroup
from cornserve.control.launcher.local.state_dir import KEPT_LOGS, ProcessRecord, ReplicaDir, StateDir
from cornserve.home import Home
from cornserve.task.spec import ExecutorSpec
from cornserve.wire.invocations import HEARTBEAT_SECONDS
from cornserve_echo.task import EchoTask
from tests.integration.launcher import doomed_launcher
from tests.integration.launcher.conformance import (
    BROKEN,
    ECHO,
    OTHER,
    LauncherConformance,
    failed,
    ids,
    none,
    observed,
    ready,
    started,
)
from tests.integration.launcher.local_site import LocalSite
from tests.loop_clock import LoopClock
from tests.waiting import until

ORPHANING = ExecutorSpec(executor="orphaning")
ONE_SLOT = ECHO.model_copy(update={"gpus": 1})
ALSO_ONE_SLOT = OTHER.model_copy(update={"gpus": 1})


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LocalSite]:
    async with cleared(LocalSite(Home(tmp_path / "home"))) as site:
        yield site


@pytest.fixture
async def one_slot(tmp_path: Path) -> AsyncIterator[LocalSite]:
    async with cleared(LocalSite(Home(tmp_path / "home"), slots=1)) as site:
        yield site


@pytest.fixture
async def short_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalSite]:
    """Replicas must drain within 0.1 s."""
    monkeypatch.setattr(process_monitor, "STOP_SECONDS", 0)
    async with cleared(LocalSite(Home(tmp_path / "home"), drain_seconds=0.1)) as site:
        yield site


@asynccontextmanager
async def cleared(site: LocalSite) -> AsyncIterator[LocalSite]:
    try:
        yield site
    finally:
        await site.clear()


@pytest.fixture
def orphaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the orphaning executor as a package with an entry point, for the processes that are started."""
    metadata = tmp_path / "packages" / "cornserve_orphaning-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cornserve-orphaning\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[cornserve.executors]\norphaning = cornserve_orphaning:OrphaningExecutor\n"
    )
    modules = Path(__file__).parent / "orphaning"
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(metadata.parent), str(modules), inherited])))


@pytest.fixture
def unrelated() -> Iterator[psutil.Process]:
    """A process that does not belong to a replica, with its own session."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield psutil.Process(process.pid)
        process.kill()


@pytest.fixture
def orphan() -> Iterator[psutil.Process]:
    """A process that does not belong to a replica and has outlived the leader of its session."""
    command = ["sh", "-c", "sleep 1000 >/dev/null & echo $!"]
    leader = subprocess.run(command, start_new_session=True, stdout=subprocess.PIPE, text=True, check=True)
    process = psutil.Process(int(leader.stdout))
    yield process
    process.kill()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def engines(launcher: Launcher, replica: Replica) -> list[int]:
    lines = [line for line in await launcher.logs(replica.id, 100) if line.startswith("engine ")]
    assert len(lines) == 2
    return [int(line.removeprefix("engine ")) for line in lines]


class TestLocalLauncher(LauncherConformance):
    pass


class TestRemainingProcesses:
    async def test_are_killed_before_a_replacement_starts(self, site: LocalSite, orphaning: None) -> None:
        async with site.open() as launcher:
            [dead] = await started(launcher, ORPHANING)
            pids = await engines(launcher, dead)
            await site.kill(dead.id)
            await observed(launcher, lambda replicas: dead.id not in ids(replicas))
            assert not any(map(runs, pids))
            await observed(launcher, ready(1))

    @pytest.mark.slow
    async def test_are_killed_by_the_next_launcher(self, site: LocalSite, orphaning: None) -> None:
        async with site.open() as launcher:
            [dead] = await started(launcher, ORPHANING)
            pids = await engines(launcher, dead)
        await site.kill(dead.id)
        assert all(map(runs, pids))
        async with site.open() as launcher:
            await observed(launcher, none)
        assert not any(map(runs, pids))

    @pytest.mark.slow
    async def test_are_killed_when_their_group_is_deleted(self, site: LocalSite, orphaning: None) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher, ORPHANING)
            pids = await engines(launcher, replica)
            await launcher.delete(replica.group)
            await observed(launcher, none)
        assert not any(map(runs, pids))


class TestSharedMemory:
    async def test_is_freed_if_every_process_of_the_replica_is_killed(self, site: LocalSite, orphaning: None) -> None:
        async with site.open() as launcher:
            [dead] = await started(launcher, ORPHANING)
            group = site.process(dead.id).process_group
            record = site.home.replicas / dead.id / "shared-memory"
            await until(record.exists)
        [semaphore] = group.shared_memory_files()
        await group.kill_all()  # After a second, this also kills the process that would unlink the file.
        semaphore.touch()  # The process may have unlinked it before.
        async with site.open() as launcher:
            await observed(launcher, none)
        assert not semaphore.exists()

    def test_with_other_names_is_not_freed(self) -> None:
        with NamedTemporaryFile(dir="/dev/shm", prefix="cornserve-test-") as file:
            file.truncate(4096)
            with closing(mmap.mmap(file.fileno(), 4096)):
                assert not files_mapped_by([os.getpid()])


class TestPids:
    async def test_a_process_that_reuses_the_pid_is_not_killed(
        self, site: LocalSite, unrelated: psutil.Process
    ) -> None:
        now = ProcessGroup.from_pid(unrelated.pid, replica="echo-found")
        write_record(site, now.model_copy(update={"started": now.started - 10}))
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            await observed(launcher, ready(1))
        assert runs(unrelated.pid)

    async def test_a_session_of_another_boot_is_not_killed(
        self, site: LocalSite, unrelated: psutil.Process, orphan: psutil.Process
    ) -> None:
        now = ProcessGroup.from_pid(unrelated.pid, replica="echo-found")
        for pid in (unrelated.pid, os.getsid(orphan.pid)):
            write_record(site, now.model_copy(update={"pid": pid, "boot": "before the reboot"}))
            async with site.open() as launcher:
                await observed(launcher, none)
        assert runs(unrelated.pid)
        assert runs(orphan.pid)

    @pytest.mark.slow
    async def test_deaths_are_detected_without_pidfds(self, site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "pidfd_open")
        async with site.open() as launcher:
            [dead] = await started(launcher)
            await site.kill(dead.id)
            await observed(launcher, lambda replicas: dead.id not in ids(replicas) and ready(1)(replicas))


class TestKilledLaunchers:
    def killed(self, site: LocalSite, moment: str) -> int:
        """Runs a launcher that is killed at the moment and returns the pid of its executor."""
        done = subprocess.run(
            [sys.executable, doomed_launcher.__file__, str(site.home.path), moment],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        return int(done.stdout)

    @pytest.mark.parametrize("moment", ["before the record", "after the record"])
    async def test_leave_no_unrecorded_process(self, site: LocalSite, moment: str) -> None:
        pid = self.killed(site, moment)
        await until(lambda: not runs(pid))
        async with site.open() as launcher:
            await observed(launcher, none)
            assert StateDir(site.home.replicas).find_replicas() == []

    async def test_leave_replicas_that_the_next_launcher_adopts(self, site: LocalSite) -> None:
        pid = self.killed(site, "when it is ready")
        async with site.open() as launcher:
            [found] = await started(launcher)
            assert site.process(found.id).process_group.pid == pid
            await site.kill(found.id)
            await observed(launcher, lambda replicas: found.id not in ids(replicas) and ready(1)(replicas))


class TestDamagedFiles:
    @pytest.mark.parametrize("damage", ["{", ""])
    async def test_a_running_replica_with_a_damaged_record_is_adopted(self, one_slot: LocalSite, damage: str) -> None:
        async with one_slot.open() as launcher:
            [before] = await started(launcher, ONE_SLOT)
        record = one_slot.process(before.id)
        write_file(one_slot.home.replicas / before.id / "process.json", damage)
        async with one_slot.open() as launcher:
            [found] = await started(launcher, ONE_SLOT)
            assert found == before
            assert one_slot.process(found.id) == record

    async def test_a_damaged_record_of_a_dead_replica_is_removed(self, site: LocalSite) -> None:
        folder = StateDir(site.home.replicas).create_replica_dir(ReplicaId("echo-found"))
        write_file(folder.path / "process.json", "{")
        assert StateDir(site.home.replicas).find_replicas() == []
        assert not folder.path.exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("damage", ["", "garbage", "127.0.0.1:1\n" * 3])
    async def test_a_replica_with_damaged_addresses_is_replaced(self, site: LocalSite, damage: str) -> None:
        async with site.open() as launcher:
            [before] = await started(launcher)
        write_file(site.home.replicas / before.id / "endpoint", damage)
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            await observed(launcher, lambda replicas: before.id not in ids(replicas) and ready(1)(replicas))

    async def test_replicas_start_as_soon_as_the_directory_is_writable(
        self, site: LocalSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replica_supervisor, "CHECK_SECONDS", 0.05)
        problem = "cannot start: cannot write to replicas: No space left on device"
        async with site.open() as launcher:
            with monkeypatch.context() as patch:
                patch.setattr(StateDir, "find_problem", lambda _: problem)
                await launcher.apply(ExecutorGroup(ECHO, 1))
                [replica] = await observed(launcher, failed)
                assert (replica.message, replica.failures) == (problem, 0)
            await observed(launcher, ready(1))

    async def test_a_directory_that_cannot_be_written_is_a_problem(self, tmp_path: Path) -> None:
        write_file(tmp_path / "replicas", "")
        problem = StateDir(tmp_path / "replicas").find_problem()
        assert re.match(rf"cannot start: cannot write to {tmp_path / 'replicas'}, on the disk /\S*: ", problem)
        assert StateDir(tmp_path / "others").find_problem() == ""


class TestEndOfAReplica:
    async def test_leaves_no_process_no_port_and_no_directory(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher)
            group = site.process(replica.id).process_group
            await launcher.delete(replica.group)
            await observed(launcher, none)
            assert "draining" in "\n".join(await launcher.logs(replica.id, 100))
        assert not psutil.pid_exists(group.pid)
        assert replica.endpoint is not None
        host, port = replica.endpoint.split(":")
        with pytest.raises(ConnectionRefusedError), closing(create_connection((host, int(port)))):
            pass
        assert [path.name for path in site.home.replicas.iterdir()] == ["ended"]

    async def test_is_forced_after_the_drain_timeout(self, short_drain: LocalSite) -> None:
        async with short_drain.open() as launcher:
            [replica] = await started(launcher)
            pid = short_drain.process(replica.id).process_group.pid
            os.kill(pid, signal.SIGSTOP)
            await launcher.delete(replica.group)
            await observed(launcher, none)
            assert not runs(pid)

    async def test_reports_the_signal(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher)
            [dead], _ = await asyncio.gather(observed(launcher, failed), site.kill(replica.id))
        assert dead.id == replica.id
        assert "signal 9 (Killed)" in dead.message

    async def test_reports_that_the_kernel_has_killed_it_for_lack_of_memory(
        self, site: LocalSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counter = tmp_path / "memory.events"
        counter.write_text("oom_kill 3\n")
        monkeypatch.setattr(process_monitor, "find_oom_counter", lambda process: counter)
        async with site.open() as launcher:
            [replica] = await started(launcher)
            counter.write_text("oom_kill 4\n")
            await site.kill(replica.id)
            await observed(launcher, lambda replicas: replica.id not in ids(replicas))
            [exit] = launcher.exits(replica.group)
        assert exit.message.startswith("out of memory: killed by signal 9 (Killed); ")

    def test_keeps_the_latest_logs(self, tmp_path: Path) -> None:
        folders = StateDir(tmp_path)
        for number in range(KEPT_LOGS + 1):
            folder = folders.create_replica_dir(ReplicaId(f"r{number}"))
            folder.log.write_text(f"{number}\n")
            os.utime(folder.log, (number, number))
            folders.archive(folder)
        assert folders.logs(ReplicaId("r0"), 10) == []
        assert folders.logs(ReplicaId("r1"), 10) == ["1"]
        assert folders.logs(ReplicaId(f"r{KEPT_LOGS}"), 10) == [str(KEPT_LOGS)]

    async def test_a_killed_replica_is_replaced(self, site: LocalSite) -> None:
        folders = StateDir(site.home.replicas)
        async with site.open() as launcher:
            [replica] = await started(launcher)
            assert await asyncio.to_thread(folders.kill, replica.id)
            await observed(launcher, lambda replicas: replica.id not in ids(replicas))

    def test_replicas_that_do_not_run_are_not_killed(self, tmp_path: Path) -> None:
        folders = StateDir(tmp_path / "replicas")
        folders.create_replica_dir(ReplicaId("ended"))
        for replica in ("ended", "unknown", "../replicas/ended", "..", ""):
            assert not folders.kill(ReplicaId(replica))

    async def test_a_corrupt_record_is_removed(self, site: LocalSite) -> None:
        folder = StateDir(site.home.replicas).create_replica_dir(ReplicaId("corrupt"))
        (folder.path / "process.json").write_text('{"spec": ')
        async with site.open() as launcher:
            assert launcher.replicas() == []
        assert not folder.path.exists()


class TestUnresponsiveReplicas:
    async def test_a_hanging_replica_is_replaced_and_reports_the_reason(
        self, site: LocalSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process_monitor, "HEARTBEAT_SECONDS", 2.7)
        monkeypatch.setattr(process_monitor, "UNREADY_MISSED_HEARTBEATS", 1)
        monkeypatch.setattr(process_monitor, "MAX_MISSED_HEARTBEATS", 2)
        async with site.open() as launcher:
            [hanging, other] = await started(launcher, replicas=2)
            os.kill(site.process(hanging.id).process_group.pid, signal.SIGSTOP)
            unready = await observed(launcher, lambda replicas: "does not respond" in replicas[0].message)
            assert unready[0] == replace(hanging, state=ReplicaState.STARTING, message="does not respond")
            [dead, _] = await observed(launcher, failed)
            assert dead.message.startswith("did not respond for 5.4 s and was killed")
            replicas = await observed(launcher, lambda replicas: hanging.id not in ids(replicas) and ready(2)(replicas))
            assert other in replicas

    @pytest.mark.slow
    async def test_an_adopted_replica_that_hangs_is_replaced(self, site: LocalSite, clock: LoopClock) -> None:
        async with site.open() as launcher:
            [hanging] = await started(launcher)
            await until(lambda: ReplicaDir(site.home.replicas / hanging.id).has_started)
        pid = site.process(hanging.id).process_group.pid
        os.kill(pid, signal.SIGSTOP)
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(ECHO, 1))
            await clock.advance_until(lambda: not runs(pid), step=HEARTBEAT_SECONDS)
            [dead] = await observed(launcher, failed)
            assert dead.id == hanging.id
            assert dead.message.startswith("did not respond for 30 s and was killed")
            await observed(launcher, lambda replicas: hanging.id not in ids(replicas) and ready(1)(replicas))

    async def test_a_replica_that_responds_again_is_ready_again(self, site: LocalSite, clock: LoopClock) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher)
            pid = site.process(replica.id).process_group.pid
            os.kill(pid, signal.SIGSTOP)
            unready = observed(launcher, lambda replicas: "does not respond" in replicas[0].message)
            await clock.advance_during(unready, step=HEARTBEAT_SECONDS)
            os.kill(pid, signal.SIGCONT)
            assert await observed(launcher, ready(1)) == [replica]

    @pytest.mark.slow
    async def test_a_loading_replica_may_be_unresponsive_for_longer(
        self, site: LocalSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process_monitor, "HEARTBEAT_SECONDS", 0.1)
        monkeypatch.setattr(process_monitor, "UNREADY_MISSED_HEARTBEATS", 1)
        monkeypatch.setattr(process_monitor, "MAX_MISSED_HEARTBEATS", 2)
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(EchoTask(start_seconds=2).executor_spec(), 1))
            [loading] = await observed(launcher, lambda replicas: replicas[0].message == "loading words")
            os.kill(site.process(loading.id).process_group.pid, signal.SIGSTOP)
            [unresponsive] = await observed(launcher, lambda replicas: "does not respond" in replicas[0].message)
            assert unresponsive.message == "loading words; does not respond"
            monkeypatch.setattr(process_monitor, "MAX_MISSED_HEARTBEATS", 1000)
            os.kill(site.process(loading.id).process_group.pid, signal.SIGCONT)
            assert ids(await observed(launcher, ready(1))) == {loading.id}


class TestCrashLoops:
    @pytest.mark.slow
    async def test_unstable_replicas_are_replaced_after_growing_delays(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            delays, description = [], ""
            [replica] = await started(launcher)
            for _ in range(4):
                await site.kill(replica.id)
                [dead] = await observed(launcher, failed)
                delays.append(dead.restart_delay)
                description = dead.description
                [replica] = await observed(launcher, ready(1))
        assert delays == [0, 0, 0.05, 0.1]
        assert description.endswith("; starts again in 0.1 s")

    async def test_stable_replicas_are_replaced_without_delay(
        self, site: LocalSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replica_supervisor, "STABLE_SECONDS", 0)
        async with site.open() as launcher:
            [replica] = await started(launcher)
            for _ in range(4):
                await site.kill(replica.id)
                [dead] = await observed(launcher, failed)
                assert dead.restart_delay == 0
                [replica] = await observed(launcher, ready(1))


class TestDeviceSlots:
    async def test_a_replica_without_a_slot_waits_for_one(self, one_slot: LocalSite) -> None:
        async with one_slot.open() as launcher:
            [holder] = await started(launcher, ONE_SLOT)
            await launcher.apply(ExecutorGroup(ALSO_ONE_SLOT, 1))
            [_, waiting] = await observed(launcher, lambda replicas: replicas[-1].message != "")
            assert waiting.state is ReplicaState.STARTING
            assert waiting.message == "needs 1 CPU slot, 0 of 1 free"
            await launcher.apply(ExecutorGroup(OTHER, 1))  # This group needs no slot.
            await observed(launcher, lambda replicas: replicas[-1].state is ReplicaState.READY)
            await launcher.delete(holder.group)
            await observed(launcher, lambda replicas: waiting.id in ids(replicas) and ready(2)(replicas))

    async def test_scaling_down_ends_replicas_that_are_not_ready_first(self, one_slot: LocalSite) -> None:
        async with one_slot.open() as launcher:
            before = await started(launcher, ONE_SLOT)
            await launcher.apply(ExecutorGroup(ONE_SLOT, 3))
            await launcher.apply(ExecutorGroup(ONE_SLOT, 1))
            assert await observed(launcher, ready(1)) == before

    async def test_a_replica_that_can_never_fit_fails_with_the_numbers_of_slots(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            await launcher.apply(ExecutorGroup(BROKEN.model_copy(update={"gpus": 9}), 1))
            [replica] = await observed(launcher, failed)
            assert replica.unschedulable
            assert "needs 9 CPU slots, 8 of 8 free" in replica.message
            await launcher.delete(replica.group)
            await observed(launcher, none)

    @pytest.mark.slow
    async def test_adopted_replicas_hold_their_slots(self, one_slot: LocalSite) -> None:
        async with one_slot.open() as launcher:
            [found] = await started(launcher, ONE_SLOT)
        async with one_slot.open() as launcher:
            await launcher.apply(ExecutorGroup(ONE_SLOT, 2))
            await observed(launcher, lambda replicas: replicas[-1].message == "needs 1 CPU slot, 0 of 1 free")
            assert one_slot.process(found.id).slots == ("0",)


def write_record(site: LocalSite, group: ProcessGroup) -> ReplicaDir:
    """Writes the record of a replica of an earlier launcher."""
    folder = StateDir(site.home.replicas).create_replica_dir(ReplicaId("echo-found"))
    folder.log.touch()
    folder.write_process(ProcessRecord(spec=ECHO, slots=(), process_group=group))
    return folder


def write_file(path: Path, text: str) -> None:
    path.write_text(text)
