from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from cornserve.control.managed_process import MAX_FAILURES, ManagedProcess, ManagedProcessError, ProcessSpec
from tests.waiting import until

WAITS_FOR_INPUT = "import signal, sys; print('here', flush=True); sys.stdin.read()"
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print('here', flush=True); signal.pause()"


def process_spec(tmp_path: Path, code: str, *, stop_seconds: float = 20) -> ProcessSpec:
    return ProcessSpec("thing", [sys.executable, "-c", code], tmp_path / "log", stop_seconds=stop_seconds)


def managed(spec: ProcessSpec, reports: list[str], force_stop: asyncio.Event | None = None) -> ManagedProcess:
    return ManagedProcess(spec, inherited=(), force_stop=force_stop or asyncio.Event(), report=reports.append)


async def test_a_process_that_exits_is_restarted(tmp_path: Path) -> None:
    reports: list[str] = []
    running = asyncio.create_task(managed(process_spec(tmp_path, "print('here', flush=True); exit(7)"), reports).run())
    log = tmp_path / "log"
    await until(lambda: log.exists() and log.read_text().count("here") == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the thing exited with status 7" in reports[0]


async def test_a_process_that_keeps_failing_is_not_restarted_and_its_last_log_line_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.managed_process.FIRST_DELAY", 0)
    with pytest.raises(ManagedProcessError, match="no module named corn"):
        await managed(process_spec(tmp_path, "exit('no module named corn')"), []).run()


async def test_a_process_that_exits_with_the_no_restart_status_is_not_restarted(tmp_path: Path) -> None:
    code = "import sys; print('port 1 is in use', file=sys.stderr); exit(2)"
    with pytest.raises(ManagedProcessError, match="port 1 is in use"):
        await managed(process_spec(tmp_path, code), []).run()
    assert (tmp_path / "log").read_text().count("in use") == 1


async def test_a_process_that_is_killed_is_always_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.control.managed_process.FIRST_DELAY", 0)
    reports: list[str] = []
    running = asyncio.create_task(
        managed(process_spec(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), reports).run()
    )
    await until(lambda: len(reports) > 2 * MAX_FAILURES)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_cancellation_terminates_the_process(tmp_path: Path) -> None:
    reports: list[str] = []
    running = asyncio.create_task(managed(process_spec(tmp_path, WAITS_FOR_INPUT), reports).run())
    await until(lambda: (tmp_path / "log").exists() and "here" in (tmp_path / "log").read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == []


@pytest.mark.parametrize("forced", [True, False])
async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, forced: bool) -> None:
    force_stop, reports = asyncio.Event(), list[str]()
    spec = process_spec(tmp_path, IGNORES_SIGTERM, stop_seconds=600 if forced else 0.01)
    running = asyncio.create_task(managed(spec, reports, force_stop).run())
    await until(lambda: (tmp_path / "log").exists() and "here" in (tmp_path / "log").read_text())
    running.cancel()
    if forced:
        force_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == ["killing the thing, which has not exited yet"]
