"""Keeps a process of the instance running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cornserve.backoff import backoff_seconds
from cornserve.blocking_apps import CURRENT_APP_VARIABLE
from cornserve.control.launcher.local.bounded_log import keep_bounded
from cornserve.control.local_instance.heartbeat_monitor import HeartbeatMonitor
from cornserve.exit_reason import exit_reason
from cornserve.heartbeat import DUMP_SIGNAL, HEARTBEAT_VARIABLE
from cornserve.observe.logs import parse_messages

EXIT_NO_RESTART = 2
"""Exit status of a process that would fail again after a restart, for example because its port is in use."""

STABLE_SECONDS = 30.0
"""A process that ran for this long counts as stable: its next failure counts as the first."""

MAX_FAILURES = 4
"""A process that was never stable is not restarted after this number of consecutive failures.

SIGKILL does not count: a user or the system's out-of-memory killer sends it.
"""

FIRST_DELAY = 0.5
LONGEST_DELAY = 15.0

DUMP_SECONDS = 1.0
"""The time that a blocked process has to write the stacks of its threads to its log."""


class ManagedProcessError(Exception):
    """A process cannot run."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are added to the environment of the parent."""
    stop_seconds: float = 20.0
    """Time between SIGTERM and SIGKILL."""
    blocked_seconds: int = 10
    """Time without heartbeats after which the process is killed."""

    def last_log_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((parse_messages(line.strip())[-1] for line in reversed(lines) if line.strip()), "")
        return ""


class ManagedProcess:
    """Runs a process until cancelled, and restarts it when it exits or when its event loop is blocked.

    The process has its own session, so that Ctrl-C in the terminal reaches only the supervisor, which stops its
    processes in order. Its standard input is a pipe that ends when the supervisor dies.

    Args:
        inherited: file descriptors that the process inherits.
        force_stop: once set, the process is killed instead of awaited.
        report: is called with a message at each restart.
        on_blocked: is called with the app that has blocked the event loop, if it is known. May raise `OSError`.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        inherited: tuple[int, ...],
        force_stop: asyncio.Event,
        report: Callable[[str], None],
        on_blocked: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self._inherited = inherited
        self._force_stop = force_stop
        self._report = report
        self._on_blocked = on_blocked
        self.ready = asyncio.Event()
        """Set while the process reports that it is ready."""

    async def run(self) -> None:
        """Runs the process. Raises `ManagedProcessError` if a restart would fail again."""
        log_bound = asyncio.create_task(keep_bounded(self.spec.log))
        try:
            await self._restart_forever()
        finally:
            log_bound.cancel()
            await asyncio.gather(log_bound, return_exceptions=True)

    async def _restart_forever(self) -> None:
        failures, was_stable = 0, False
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            status = await self._run_once()
            was_ready = self.ready.is_set()
            self.ready.clear()
            is_stable = loop.time() - started > STABLE_SECONDS
            was_stable |= is_stable
            was_killed = status == -signal.SIGKILL
            failures = int(not was_ready) if is_stable or was_killed else failures + 1
            if status == EXIT_NO_RESTART or (failures >= MAX_FAILURES and not was_stable):
                raise ManagedProcessError(self.spec.last_log_line() or f"the {self.spec.name} {exit_reason(status)}")
            delay = backoff_seconds(failures, first=FIRST_DELAY, longest=LONGEST_DELAY)
            start = f"starts again in {delay:g} s" if delay else "starts again"
            self._report(f"the {self.spec.name} {exit_reason(status)} (see {self.spec.log}); {start}")
            await asyncio.sleep(delay)

    async def _run_once(self) -> int:
        monitor = HeartbeatMonitor(self.spec.blocked_seconds, self.ready)
        starting = asyncio.ensure_future(self._start(monitor))
        try:
            # Shielded: a start that is cancelled halfway would kill the process without SIGTERM.
            return await self._wait(await asyncio.shield(starting), monitor)
        finally:
            process = await starting
            if process.returncode is None:
                await self._stop(process)
            monitor.close()

    async def _start(self, monitor: HeartbeatMonitor) -> asyncio.subprocess.Process:
        descriptors = {HEARTBEAT_VARIABLE: monitor.write_end, CURRENT_APP_VARIABLE: monitor.current_app_file}
        with _open_log(self.spec.log) as log:
            return await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self.spec.environment | {name: str(number) for name, number in descriptors.items()},
                pass_fds=(*self._inherited, *descriptors.values()),
            )

    async def _wait(self, process: asyncio.subprocess.Process, monitor: HeartbeatMonitor) -> int:
        """Waits until the process exits. Kills it if it is blocked."""
        exited = asyncio.ensure_future(process.wait())
        blocked = asyncio.ensure_future(monitor.wait_until_blocked())
        try:
            await asyncio.wait((exited, blocked), return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                self._report_blocked(monitor.current_app.read())
                await self._kill_blocked(process, exited)
            return await exited
        finally:
            exited.cancel()
            blocked.cancel()

    def _report_blocked(self, app: str | None) -> None:
        cause = "" if app is None else f", because of a task of the app {app!r}"
        seconds = f"its event loop has not run for {self.spec.blocked_seconds} s{cause}"
        self._report(f"killing the {self.spec.name}: {seconds} (see the stacks of its threads in {self.spec.log})")
        if app is not None:
            try:
                self._on_blocked(app)
            except OSError as error:  # The disk may be full: the process is killed nevertheless.
                self._report(f"cannot store that the app {app!r} blocks the {self.spec.name}: {error}")

    async def _kill_blocked(self, process: asyncio.subprocess.Process, exited: asyncio.Future[int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(DUMP_SIGNAL)
            await asyncio.wait((exited,), timeout=DUMP_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        exited, forced = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._force_stop.wait())
        await asyncio.wait((exited, forced), timeout=self.spec.stop_seconds, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if not exited.done():
            self._report(f"killing the {self.spec.name}, which has not exited yet")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await exited


def _open_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")
