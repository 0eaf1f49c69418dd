"""Executors that the local launcher forks from a process that has imported their engine."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from cornserve.control.launcher.base import ExecutorGroup, Launcher, Replica
from cornserve.control.launcher.local import orphans, warm_process, warm_processes
from cornserve.control.launcher.local.slot_types import parse_slot_types
from cornserve.home import Home
from cornserve.task.spec import ExecutorSpec
from tests.integration.launcher import test_local
from tests.integration.launcher.conformance import LauncherConformance, failed, ids, none, observed, ready, started
from tests.integration.launcher.local_site import LocalSite
from tests.waiting import until

MODULES = Path(__file__).parent / "warm"
ENGINES = {
    "warm": "cornserve_warm:import_engine",
    "also-warm": "cornserve_warm:import_engine",
    "failing": "cornserve_warm:fail",
    "stopped": "cornserve_warm:stop",
    "threaded": "cornserve_warm:start_thread",
    "echo": "gc:collect",
}
WARM, ALSO_WARM = ExecutorSpec(executor="warm"), ExecutorSpec(executor="also-warm")
COLD = "imported by []"


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs the executors and their engines, for this process and those that it starts."""
    metadata = tmp_path / "packages" / "cornserve_warm-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cornserve-warm\nVersion: 1\n")
    executors = "".join(f"{name} = cornserve_warm:WarmExecutor\n" for name in ENGINES if name != "echo")
    functions = "".join(f"{name} = {function}\n" for name, function in ENGINES.items())
    (metadata / "entry_points.txt").write_text(f"[cornserve.executors]\n{executors}[cornserve.engines]\n{functions}")
    paths = [str(metadata.parent), str(MODULES)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH", "")])))
    monkeypatch.syspath_prepend(metadata.parent)
    warm_processes.engines.cache_clear()
    yield
    warm_processes.engines.cache_clear()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LocalSite]:
    site = LocalSite(Home(tmp_path / "home"))
    try:
        yield site
    finally:
        await site.clear()


async def find_line(launcher: Launcher, replica: Replica, start: str) -> str:
    lines = await launcher.logs(replica.id, 100)
    [line] = [line for line in lines if line.startswith(start)]
    return line


async def origin(launcher: Launcher, replica: Replica) -> str:
    return await find_line(launcher, replica, "imported by ")


async def engine_of(launcher: Launcher, replica: Replica) -> int:
    return int((await find_line(launcher, replica, "engine ")).removeprefix("engine "))


def children(module: str = "cornserve_executors.base.warm_process") -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.ZombieProcess:
            continue
    return found


async def restarted(launcher: Launcher, site: LocalSite, replica: Replica) -> Replica:
    """Kills the replica, and returns the replica that replaces it."""
    await site.kill(replica.id)
    [found] = await observed(launcher, lambda replicas: replica.id not in ids(replicas) and ready(1)(replicas))
    return found


@pytest.mark.slow
class TestConformanceOfForks(LauncherConformance):
    """The echo executor is forked."""


@pytest.mark.slow
class TestKilledLaunchersOfForks(test_local.TestKilledLaunchers):
    """The echo executor is forked."""


class TestForkedExecutors:
    async def test_share_the_process_that_has_imported_their_engine(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            await started(launcher, WARM, replicas=2)
            await launcher.apply(ExecutorGroup(ALSO_WARM, 1))
            replicas = await observed(launcher, ready(3))

            [warm] = children()
            assert {await origin(launcher, replica) for replica in replicas} == {f"imported by [{warm.pid}]"}
            assert len({site.process(replica.id).process_group.pid for replica in replicas} | {warm.pid}) == 4

    async def test_look_like_started_ones(self, site: LocalSite) -> None:
        typed = LocalSite(site.home, slot_types=parse_slot_types(["small=1"]))
        spec = WARM.model_copy(update={"gpus": 1})
        async with site.open() as launcher:
            [forked] = await started(launcher, spec)
            assert await origin(launcher, forked) != COLD
            shown = describe(site.process(forked.id).process_group.pid, forked)
            engine = psutil.Process(await engine_of(launcher, forked))
            await until(lambda: engine.cmdline()[0] == "VLLM::EngineCore")
        await site.clear()
        async with typed.open() as launcher:
            [cold] = await started(launcher, spec)
            assert await origin(launcher, cold) == COLD
            assert describe(site.process(cold.id).process_group.pid, cold) == shown

    @pytest.mark.slow
    async def test_report_the_signal_that_has_killed_them(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher, WARM)
            await restarted(launcher, site, replica)
            [end] = launcher.exits(replica.group)
            assert end.message.startswith("killed by signal 9 (Killed); ")

    async def test_are_adopted_without_their_record(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            [before] = await started(launcher, WARM)
        record = site.process(before.id)
        (site.home.replicas / before.id / "process.json").write_text("{")
        assert not children()
        async with site.open() as launcher:
            [found] = await started(launcher, WARM)
            assert (found, site.process(found.id)) == (before, record)
            await restarted(launcher, site, found)

    @pytest.mark.slow
    async def test_leave_no_engine_behind(self, site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(orphans, "CHECK_SECONDS", 0.05)
        async with site.open() as launcher:
            [replica] = await started(launcher, WARM)
            engine = await engine_of(launcher, replica)
            await restarted(launcher, site, replica)
            await until(lambda: not psutil.pid_exists(engine))


class TestLostWarmth:
    async def test_executors_survive_the_process_and_a_new_one_forks_the_next(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher, WARM)
            [warm] = children()
            warm.kill()
            await until(lambda: not warm.is_running() or warm.status() == psutil.STATUS_ZOMBIE)
            assert ready(1)(launcher.replicas())

            found = await restarted(launcher, site, replica)
            [other] = children()
            assert await origin(launcher, found) == f"imported by [{other.pid}]"
            [end] = launcher.exits(replica.group)
            assert end.message.startswith("killed by signal 9 (Killed); ")

    async def test_a_process_that_hangs_is_ended(self, site: LocalSite, monkeypatch: pytest.MonkeyPatch) -> None:
        async with site.open() as launcher:
            [replica] = await started(launcher, WARM)
            [warm] = children()
            warm.suspend()
            monkeypatch.setattr(warm_process, "FORK_SECONDS", 0.1)
            found = await restarted(launcher, site, replica)
            assert await origin(launcher, found) == COLD
            assert not children()

    @pytest.mark.parametrize(
        ("executor", "reason"),
        [
            ("failing", "it has ended: libnuma is missing"),
            pytest.param("threaded", "has started 1 threads, which do not survive a fork", marks=pytest.mark.slow),
            pytest.param("stopped", "it has not used the CPU for 0.1 s while it imports", marks=pytest.mark.slow),
        ],
    )
    async def test_an_engine_that_cannot_be_forked_is_imported_by_executors(
        self,
        site: LocalSite,
        executor: str,
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        if executor == "stopped":
            monkeypatch.setattr(warm_process, "IDLE_IMPORT_SECONDS", 0.1)
        async with site.open() as launcher:
            [replica] = await started(launcher, ExecutorSpec(executor=executor))
            assert await origin(launcher, replica) == COLD
            assert reason in caplog.text
            assert not children()
            assert launcher.exits(replica.group) == ()


class TestEnd:
    @pytest.mark.slow
    async def test_a_process_ends_when_no_replica_is_wanted(
        self, site: LocalSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(warm_processes, "KEEP_SECONDS", 0)
        async with site.open() as launcher:
            [replica] = await started(launcher, WARM)
            await launcher.apply(ExecutorGroup(ALSO_WARM, 1))
            await observed(launcher, ready(2))
            await launcher.delete(replica.group)
            await observed(launcher, ready(1))
            assert children()
            await launcher.prune(set())
            await observed(launcher, none)
            await until(lambda: not children())

    async def test_a_replica_that_is_not_wanted_any_more_does_not_wait_for_imports(self, site: LocalSite) -> None:
        async with site.open() as launcher:
            group = ExecutorGroup(ExecutorSpec(executor="stopped"), 1)
            await launcher.apply(group)
            await until(lambda: bool(children()))
            await launcher.delete(group.key)
            await observed(launcher, none)
            assert not failed(launcher.replicas())


def describe(pid: int, replica: Replica) -> tuple[list[str], dict[str, str], str]:
    process = psutil.Process(pid)
    assert os.getsid(pid) == pid
    assert process.ppid() == os.getpid()
    arguments = [argument.replace(replica.id, "REPLICA") for argument in process.cmdline()]
    assert arguments[:4] == [sys.executable, "-P", "-m", "cornserve_executors.base"]
    environment = process.environ()
    assert environment.pop("CORNSERVE_REPLICA") == replica.id
    assert environment.pop("CORNSERVE_SLOTS") in ("0", "small-0")
    return arguments, environment, process.name()
