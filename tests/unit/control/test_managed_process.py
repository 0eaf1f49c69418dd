from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from cornserve.control.managed_process import MAX_FAILURES, ManagedProcess, ManagedProcessError, ProcessSpec
from tests.waiting import until

SLEEPY = "import signal, sys; print('here', flush=True); sys.stdin.read()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('here', flush=True); signal.pause()"


def program(tmp_path: Path, code: str, *, stop_seconds: float = 20) -> ProcessSpec:
    return ProcessSpec("thing", [sys.executable, "-c", code], tmp_path / "log", stop_seconds=stop_seconds)


def child(program: ProcessSpec, reports: list[str], force_stop: asyncio.Event | None = None) -> ManagedProcess:
    return ManagedProcess(program, inherited=(), force_stop=force_stop or asyncio.Event(), report=reports.append)


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    reports: list[str] = []
    running = asyncio.create_task(child(program(tmp_path, "print('here', flush=True); exit(7)"), reports).run())
    log = tmp_path / "log"
    await until(lambda: log.exists() and log.read_text().count("here") == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the thing ended with status 7" in reports[0]


async def test_a_child_that_never_works_is_given_up_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.managed_process.FIRST_DELAY", 0)
    with pytest.raises(ManagedProcessError, match="no module named corn"):
        await child(program(tmp_path, "exit('no module named corn')"), []).run()


async def test_a_child_whose_start_is_in_vain_is_not_started_again(tmp_path: Path) -> None:
    code = "import sys; print('port 1 is taken', file=sys.stderr); exit(2)"
    with pytest.raises(ManagedProcessError, match="port 1 is taken"):
        await child(program(tmp_path, code), []).run()
    assert (tmp_path / "log").read_text().count("taken") == 1


async def test_a_child_that_others_kill_is_started_again_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.managed_process.FIRST_DELAY", 0)
    reports: list[str] = []
    running = asyncio.create_task(
        child(program(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), reports).run()
    )
    await until(lambda: len(reports) > 2 * MAX_FAILURES)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_cancelling_ends_the_child(tmp_path: Path) -> None:
    reports: list[str] = []
    running = asyncio.create_task(child(program(tmp_path, SLEEPY), reports).run())
    await until(lambda: (tmp_path / "log").exists() and "here" in (tmp_path / "log").read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == []


@pytest.mark.parametrize("forced", [True, False])
async def test_a_child_that_does_not_end_is_killed(tmp_path: Path, forced: bool) -> None:
    force_stop, reports = asyncio.Event(), list[str]()
    stubborn = program(tmp_path, STUBBORN, stop_seconds=600 if forced else 0.01)
    running = asyncio.create_task(child(stubborn, reports, force_stop).run())
    await until(lambda: (tmp_path / "log").exists() and "here" in (tmp_path / "log").read_text())
    running.cancel()
    if forced:
        force_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == ["killing the thing, which has not ended yet"]
