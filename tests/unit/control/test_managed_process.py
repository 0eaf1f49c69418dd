from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cornserve.blocking_apps import BlockingApps
from cornserve.control.local_instance.managed_process import (
    DUMP_SECONDS,
    FIRST_DELAY,
    MAX_FAILURES,
    STABLE_SECONDS,
    ManagedProcess,
    ManagedProcessError,
    ProcessSpec,
)
from cornserve.heartbeat import BEAT_SECONDS
from tests.loop_clock import LoopClock
from tests.waiting import until

WAITS_FOR_INPUT = "import signal, sys; print('here', flush=True); sys.stdin.read()"
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print('here', flush=True); signal.pause()"
BLOCKS_ITS_EVENT_LOOP = """
import asyncio, os, time
from cornserve.heartbeat import start_heartbeats

def block_forever():
    print('here', os.getpid(), flush=True)
    time.sleep(1000)

async def main():
    start_heartbeats(lambda: True)
    await asyncio.sleep(0)
    block_forever()

asyncio.run(main())
"""
BLOCKS_IN_AN_APP = BLOCKS_ITS_EVENT_LOOP.replace(
    "    block_forever()",
    "    from cornserve.blocking_apps import CurrentApp\n"
    "    CurrentApp.of_process().begin(CurrentApp.encode('llama'))\n"
    "    block_forever()",
)
READY_AND_IDLE = """
import asyncio
from cornserve.heartbeat import start_heartbeats

async def main():
    start_heartbeats(lambda: True)
    print('here', flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def process_spec(tmp_path: Path, code: str, *, stop_seconds: float = 20) -> ProcessSpec:
    return ProcessSpec("thing", [sys.executable, "-c", code], tmp_path / "log", stop_seconds=stop_seconds)


def managed(
    spec: ProcessSpec,
    reports: list[str],
    force_stop: asyncio.Event | None = None,
    on_blocked: Callable[[str], None] = lambda app: None,
) -> ManagedProcess:
    return ManagedProcess(
        spec,
        inherited=(),
        force_stop=force_stop or asyncio.Event(),
        report=reports.append,
        on_blocked=on_blocked,
    )


def has_begun(tmp_path: Path, times: int = 1) -> bool:
    """Returns whether the process has begun its work this number of times."""
    log = tmp_path / "log"
    return log.exists() and log.read_text().count("here") == times


async def test_a_process_that_exits_is_restarted_after_a_delay(tmp_path: Path, clock: LoopClock) -> None:
    reports: list[str] = []
    running = asyncio.create_task(managed(process_spec(tmp_path, "print('here', flush=True); exit(7)"), reports).run())
    await until(lambda: len(reports) == 1)
    assert has_begun(tmp_path)

    clock.advance(FIRST_DELAY)
    await until(lambda: has_begun(tmp_path, times=2))

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the thing exited with status 7" in reports[0]


async def test_a_process_that_keeps_failing_is_not_restarted_and_its_last_log_line_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.control.local_instance.managed_process.FIRST_DELAY", 0)
    with pytest.raises(ManagedProcessError, match="no module named corn"):
        await managed(process_spec(tmp_path, "exit('no module named corn')"), []).run()


async def test_a_process_that_exits_with_the_no_restart_status_is_not_restarted(tmp_path: Path) -> None:
    code = "import sys; print('port 1 is in use', file=sys.stderr); exit(2)"
    with pytest.raises(ManagedProcessError, match="port 1 is in use"):
        await managed(process_spec(tmp_path, code), []).run()
    assert (tmp_path / "log").read_text().count("in use") == 1


async def test_a_process_that_is_killed_is_always_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.control.local_instance.managed_process.FIRST_DELAY", 0)
    reports: list[str] = []
    running = asyncio.create_task(
        managed(process_spec(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), reports).run()
    )
    await until(lambda: len(reports) > 2 * MAX_FAILURES)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_process_that_was_stable_is_restarted_after_any_number_of_failures(
    tmp_path: Path, clock: LoopClock
) -> None:
    ran = tmp_path / "ran"
    code = f"import os; os.path.exists({str(ran)!r}) and exit(7); open({str(ran)!r}, 'w'); {WAITS_FOR_INPUT}"
    reports: list[str] = []
    running = asyncio.create_task(managed(process_spec(tmp_path, code), reports).run())
    await until(lambda: has_begun(tmp_path))
    clock.advance(STABLE_SECONDS + 1)
    [child] = [found for found in psutil.Process().children() if _runs(found, code)]
    child.terminate()

    await clock.advance_until(lambda: len(reports) > MAX_FAILURES + 1 or running.done(), step=1)

    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_cancellation_terminates_the_process(tmp_path: Path) -> None:
    reports: list[str] = []
    running = asyncio.create_task(managed(process_spec(tmp_path, WAITS_FOR_INPUT), reports).run())
    await until(lambda: has_begun(tmp_path))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == []


@pytest.mark.parametrize("forced", [True, False])
async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path, forced: bool) -> None:
    force_stop, reports = asyncio.Event(), list[str]()
    spec = process_spec(tmp_path, IGNORES_SIGTERM, stop_seconds=600 if forced else 0.01)
    running = asyncio.create_task(managed(spec, reports, force_stop).run())
    await until(lambda: has_begun(tmp_path))
    running.cancel()
    if forced:
        force_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reports == ["killing the thing, which has not exited yet"]


async def test_a_process_whose_event_loop_is_blocked_is_restarted_and_its_stacks_are_logged(
    tmp_path: Path, clock: LoopClock
) -> None:
    reports: list[str] = []
    process = managed(process_spec(tmp_path, BLOCKS_ITS_EVENT_LOOP), reports)
    running = asyncio.create_task(process.run())
    log = tmp_path / "log"
    await until(lambda: has_begun(tmp_path))
    await clock.advance_until(lambda: len(reports) == 1, step=BEAT_SECONDS)
    await until(lambda: "in block_forever" in log.read_text())
    clock.advance(DUMP_SECONDS)
    await until(lambda: has_begun(tmp_path, times=2))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reports[:2] == [
        f"killing the thing: its event loop has not run for 10 s (see the stacks of its threads in {log})",
        f"the thing was killed by SIGKILL (see {log}); starts again",
    ]


async def test_the_app_that_blocks_an_event_loop_is_recorded(tmp_path: Path, clock: LoopClock) -> None:
    reports: list[str] = []
    blocking = BlockingApps(tmp_path / "blocking-apps")
    spec = process_spec(tmp_path, BLOCKS_IN_AN_APP)
    running = asyncio.create_task(managed(spec, reports, on_blocked=blocking.add).run())
    await until(lambda: has_begun(tmp_path))
    assert "llama" not in blocking

    await clock.advance_until(lambda: "llama" in blocking, step=BEAT_SECONDS)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reports[0].startswith(
        "killing the thing: its event loop has not run for 10 s, because of a task of the app 'llama' (see"
    )


async def test_a_blocked_process_is_restarted_although_its_app_cannot_be_recorded(
    tmp_path: Path, clock: LoopClock
) -> None:
    reports: list[str] = []
    blocking = BlockingApps(tmp_path)
    spec = process_spec(tmp_path, BLOCKS_IN_AN_APP)
    running = asyncio.create_task(managed(spec, reports, on_blocked=blocking.add).run())
    await until(lambda: has_begun(tmp_path))

    await clock.advance_until(lambda: len(reports) >= 3 or running.done(), step=BEAT_SECONDS)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "cannot store that the app 'llama' blocks the thing" in reports[1]
    assert "the thing was killed by SIGKILL" in reports[2]


async def test_a_ready_process_that_is_killed_or_stopped_starts_again_at_once(tmp_path: Path, clock: LoopClock) -> None:
    reports: list[str] = []
    process = managed(process_spec(tmp_path, READY_AND_IDLE), reports)
    running = asyncio.create_task(process.run())

    async def send(signal_number: int) -> None:
        await process.ready.wait()
        [child] = [found for found in psutil.Process().children() if _runs(found, READY_AND_IDLE)]
        child.send_signal(signal_number)

    await send(signal.SIGKILL)
    await until(lambda: len(reports) == 1)
    await send(signal.SIGSTOP)
    await clock.advance_until(lambda: len(reports) == 3, step=BEAT_SECONDS)
    await process.ready.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reports[0] == reports[2] == f"the thing was killed by SIGKILL (see {tmp_path / 'log'}); starts again"
    assert reports[1].startswith("killing the thing: its event loop has not run for 10 s")


def _runs(process: psutil.Process, code: str) -> bool:
    try:
        return code in process.cmdline()
    except psutil.Error:  # It has ended.
        return False
