"""A process that has imported an engine. Executors are forked from it, and share the memory of the imports."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

import psutil

from cornserve.control.launcher.log_excerpts import find_error

IDLE_IMPORT_SECONDS = 5.0
"""A process that has used no CPU time for so long while it imports the engine is not waited for."""

FORK_SECONDS = 2.0
"""The timeout for a fork, which takes some 50 ms."""

MAX_OUTPUT_BYTES = 64 << 10
"""The part of the output that is searched for an error, from its end."""

_MODULE = "cornserve_executors.base.warm_process"
_POLL_SECONDS = 0.5
_MAX_REPLY_BYTES = 64


class WarmProcessError(Exception):
    """The process cannot fork executors. The message is for the log."""


class WarmProcess:
    """Starts the process.

    It ends when this object is closed or this process ends. Executors that it has forked keep running, as children of
    this process, which must be a subreaper (`prctl(2)`).

    Args:
        engine: the function that imports the engine, as `module:function`.
        environment: the environment of the process and of its executors.
    """

    def __init__(self, engine: str, environment: Mapping[str, str]) -> None:
        self.engine = engine
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as failed:
            failed.callback(self._connection.close)
            self._output = os.memfd_create("cornserve-imports")
            failed.callback(os.close, self._output)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), engine],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            failed.pop_all()
        self._connection.setblocking(False)
        self._turn = threading.Lock()
        """Held during a fork."""
        self._importing = asyncio.create_task(self._wait_imports())

    @property
    def is_importing(self) -> bool:
        return not self._importing.done()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended after the imports."""
        return not self.is_importing and self._process.poll() is not None

    async def wait_imports(self) -> None:
        """Waits until the process can fork executors. Raises `WarmProcessError` if it ends or hangs before."""
        await asyncio.shield(self._importing)

    async def _wait_imports(self) -> None:
        loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(loop.sock_recv(self._connection, _MAX_REPLY_BYTES))
        try:
            used, used_at = self._cpu_seconds(), loop.time()
            while not (await asyncio.wait({reading}, timeout=_POLL_SECONDS))[0]:
                now_used = self._cpu_seconds()
                if now_used > used:
                    used, used_at = now_used, loop.time()
                elif loop.time() - used_at > IDLE_IMPORT_SECONDS:
                    raise WarmProcessError(f"it has not used the CPU for {IDLE_IMPORT_SECONDS:g} s while it imports")
            with suppress(ConnectionError):
                if reading.result():
                    return
            raise WarmProcessError(f"it has ended: {self._find_error()}")
        finally:
            reading.cancel()

    def _cpu_seconds(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0
        return float(times.user + times.system)

    def _find_error(self) -> str:
        output = os.pread(self._output, MAX_OUTPUT_BYTES, max(0, os.fstat(self._output).st_size - MAX_OUTPUT_BYTES))
        return find_error(output.decode(errors="replace").splitlines()) or "its output is empty"

    def fork(self, command: Sequence[str], variables: Mapping[str, str], descriptors: Sequence[int]) -> int:
        """Forks a process that leads a session, and returns its id. Each call blocks up to `FORK_SECONDS`.

        Raises `WarmProcessError` if the process has ended or does not respond; then it must not be used any more.

        Args:
            command: the command that the process waits to run. It must run the module `cornserve_executors.base`.
            variables: added to the environment.
            descriptors: a pipe and a log. The process runs the command after a line from the pipe, exits at its end,
                and writes its output to the log.
        """
        request = json.dumps({"command": list(command), "variables": dict(variables)}).encode()
        try:
            with self._turn:
                reply = self._exchange(request, descriptors)
        except TimeoutError:
            raise WarmProcessError(f"it has not forked an executor within {FORK_SECONDS:g} s") from None
        except OSError as error:
            raise WarmProcessError(f"it cannot fork an executor: {error}") from error
        if not reply:
            raise WarmProcessError(f"it has ended: {self._find_error()}")
        return int(reply)

    def _exchange(self, request: bytes, descriptors: Sequence[int]) -> bytes:
        self._connection.settimeout(FORK_SECONDS)
        try:
            socket.send_fds(self._connection, [request], descriptors)
            return self._connection.recv(_MAX_REPLY_BYTES)
        except TimeoutError:
            self._connection.shutdown(socket.SHUT_RDWR)  # The next call would read the late reply to this one.
            raise

    def close(self) -> None:
        """Ends the process. Blocks for milliseconds."""
        self._importing.cancel()
        asyncio.get_running_loop().remove_reader(self._connection)
        self._process.kill()
        self._process.wait()
        self._connection.close()
        os.close(self._output)
