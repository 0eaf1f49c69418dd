"""Each kind of executor with an engine is forked from a process that has imported it, and gets ready."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest

from cornserve.control.launcher.base import ExecutorGroup, Replica
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.state_dir import ReplicaDir
from cornserve.control.launcher.local.warm_processes import ENGINE_GROUP
from cornserve.home import Home
from cornserve_tasklib import EngineOptions, LLMTask
from tests.credentials import write_secret
from tests.integration.cold_starts.test_cold_starts import KILLED, KINDS
from tests.integration.launcher.conformance import none, observed, ready
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KINDS_WITH_ENGINE = sorted(KINDS.keys() - {"prefill_source", "token_source"})
WARM_PROCESS = "cornserve_executors.base.warm_process"


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[LocalLauncher]:
    home = Home(tmp_path / "home")
    write_secret(home.path)
    launcher = LocalLauncher(home, DeviceSlots.cpu(1), drain_seconds=0)
    await launcher.start()
    yield launcher
    await launcher.prune(set())
    await observed(launcher, none)
    await launcher.close()


def child_commands(parent: int) -> list[list[str]]:
    """Returns the command lines of the children that run. Ended ones are left out."""
    processes = psutil.process_iter(["ppid", "cmdline"])
    return [child.info["cmdline"] for child in processes if child.info["ppid"] == parent and child.info["cmdline"]]


def engines() -> set[str]:
    """Returns the functions that the warm processes have called."""
    return {command[-1] for command in child_commands(os.getpid()) if WARM_PROCESS in command}


def test_all_kinds_with_an_engine_are_tested() -> None:
    assert {point.name for point in entry_points(group=ENGINE_GROUP)} == {*KINDS_WITH_ENGINE, KILLED}


async def started(launcher: LocalLauncher, group: ExecutorGroup) -> Replica:
    await launcher.apply(group)
    await until(lambda: ready(1)(launcher.replicas()), seconds=300)
    [replica] = launcher.replicas()
    return replica


async def test_each_kind_is_forked(
    launcher: LocalLauncher, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in KINDS_WITH_ENGINE:
        model, make_task = KINDS[kind]
        group = ExecutorGroup(make_task(str(request.getfixturevalue(model))).executor_spec(), 1)
        await started(launcher, group)
        await launcher.delete(group.key)
        await observed(launcher, none)
    assert len(engines()) == 3
    assert "executors start without" not in caplog.text


@pytest.mark.parametrize("threads", ["1", "2"])
async def test_vllm_forks_its_engine_if_openmp_has_one_thread(
    launcher: LocalLauncher, tmp_path: Path, tiny_llama: Path, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    options = EngineOptions(kv_cache_memory_bytes=64 << 20)
    group = ExecutorGroup(LLMTask(model_id=str(tiny_llama), options=options).executor_spec(), 1)
    replica = await started(launcher, group)
    record = ReplicaDir(tmp_path / "home" / "replicas" / replica.id).read_process()
    assert record is not None
    executor = psutil.Process(record.process_group.pid)
    assert executor.ppid() == os.getpid()
    commands = [command[0] for command in child_commands(executor.pid)]
    assert commands.count("VLLM::EngineCore") == 1
    assert len(commands) == (1 if threads == "1" else 2)  # A spawned engine has a resource tracker.
    assert len(engines()) == 1
