"""A process of the instance's own that is kept running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cornserve.control.launcher.local.bounded_log import keep_bounded
from cornserve.observe.logs import said

EXIT_NO_RESTART = 2
"""The exit status by which a child says that another start would end the same way."""

SETTLED_SECONDS = 30.0
"""A child that has lived so long is one that works: its next death is a first one."""

MAX_FAILURES = 4
"""Deaths in a row, each before it settled, after which a child that has never settled is given up. To be killed from
outside, by a person or for memory, is no failure."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0


class ManagedProcessError(Exception):
    """A child cannot run."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside our own."""
    stop_seconds: float = 20.0
    """How long SIGTERM may take before SIGKILL follows."""

    def last_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((said(line.strip())[-1] for line in reversed(lines) if line.strip()), "")
        return ""


class ManagedProcess:
    """Runs a program until cancelled, again and again if it dies.

    Its standard input is a pipe that only we hold: it ends with us, however we end. It is in a session of its own, so
    that a Ctrl-C in our terminal reaches it through us, in order.

    Args:
        inherited: file descriptors that it holds while it lives.
        hurry: once set, its end is not waited for.
        report: is told of deaths.
    """

    def __init__(
        self, program: ProcessSpec, *, inherited: tuple[int, ...], hurry: asyncio.Event, report: Callable[[str], None]
    ) -> None:
        self.program = program
        self._inherited = inherited
        self._hurry = hurry
        self._report = report

    async def run(self) -> None:
        """Raises `ManagedProcessError` if another start would be in vain."""
        bounding = asyncio.create_task(keep_bounded(self.program.log))
        try:
            await self._run_again_and_again()
        finally:
            bounding.cancel()
            await asyncio.gather(bounding, return_exceptions=True)

    async def _run_again_and_again(self) -> None:
        failures, ever_settled = 0, False
        while True:
            started = time.monotonic()
            status = await self._run_once()
            settled = time.monotonic() - started > SETTLED_SECONDS
            ever_settled |= settled
            was_killed = status == -signal.SIGKILL
            failures = 1 if settled or was_killed else failures + 1
            if status == EXIT_NO_RESTART or (failures >= MAX_FAILURES and not ever_settled):
                raise ManagedProcessError(self.program.last_line() or f"the {self.program.name} {_describe(status)}")
            pause = min(FIRST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE)
            self._report(
                f"the {self.program.name} {_describe(status)} (see {self.program.log}); starts again in {pause:g} s"
            )
            await asyncio.sleep(pause)

    async def _run_once(self) -> int:
        starting = asyncio.ensure_future(self._start())
        try:
            # Shielded, because a start that is cancelled half-way kills the process without grace.
            return await (await asyncio.shield(starting)).wait()
        finally:
            process = await starting
            if process.returncode is None:
                await self._end(process)

    async def _start(self) -> asyncio.subprocess.Process:
        with _open_log(self.program.log) as log:
            return await asyncio.create_subprocess_exec(
                *self.program.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.program.environment},
                pass_fds=self._inherited,
            )

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        ended, hurried = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((ended, hurried), timeout=self.program.stop_seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not ended.done():
            self._report(f"killing the {self.program.name}, which has not ended yet")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await ended


def _open_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")


def _describe(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"
