"""An app host as its parent uses it: loads an app, and runs its code."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Final, Self

from cornserve.app.source import source_path
from cornserve.app.spec import AppSpec
from cornserve.app_host.activity import RunningCode
from cornserve.app_host.description import AppDescription
from cornserve.app_host.errors import AppHostLostError, AppLoadError, KilledWhileLoadingError
from cornserve.app_host.fork_client import ForkServer
from cornserve.app_host.host_process import HostProcess, ProcessExit
from cornserve.app_host.protocol import PARENT, REPLY_MEMORY
from cornserve.app_host.run_time import RunTimer, cpu_wait_seconds
from cornserve.daemon_thread import run_in_daemon_thread
from cornserve.limits import MIB, Limits
from cornserve.task.errors import DefinitionError
from cornserve.v1 import app_host_pb2 as pb
from cornserve.wire.connection import MessageConnection

log = logging.getLogger(__name__)

EXIT_SECONDS: Final = 1.0
"""The time after which a process is killed if it has closed its connection and does not exit."""

WATCH_SECONDS: Final = 0.1
"""The interval at which the time of the running code is compared with the limit."""

_NO_EFFECT: Final = pb.HostCommand(end_session=pb.EndSession(session=0))
"""A command that ends a session that does not exist."""


class AppHost:
    """A process that has loaded one version of an app. `start` creates it, `close` ends it."""

    def __init__(self, process: HostProcess, name: str, filename: str, module: str, limits: Limits) -> None:
        self._process = process
        self._name = name
        self._module = module
        self._source = source_path(module, filename)
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._connection = MessageConnection(PARENT, self._receive, memory=REPLY_MEMORY)
        self._calls = 0
        self._sent_commands = 0
        self._is_loaded = False
        self._replies: dict[int, asyncio.Future[pb.HostReply]] = {}
        """Outstanding replies, by the number of their call."""
        self._run_timer = RunTimer(partial(cpu_wait_seconds, process.pid))
        self._watch_timer: asyncio.TimerHandle | None = None
        self._interruption: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit: ProcessExit | None = None
        self._lost: asyncio.Future[AppHostLostError] = self._loop.create_future()
        self.description: AppDescription
        self.on_source_read: Callable[[pb.HostReply], None] | None = None
        """Is called with the host's requests for items of a stream."""

    @classmethod
    async def start(cls, fork_server: ForkServer, name: str, spec: AppSpec, module: str, limits: Limits) -> Self:
        """Loads the app in a new process, and in another one if that is killed meanwhile.

        Raises:
            DefinitionError: the spec does not define an app, or the code that defines it hangs, exits or crashes.
            AppLoadError, ForkServerError: another attempt may succeed.
        """
        try:
            return await cls._start(fork_server, name, spec, module, limits)
        except KilledWhileLoadingError:
            return await cls._start(fork_server, name, spec, module, limits)

    @classmethod
    async def _start(cls, fork_server: ForkServer, name: str, spec: AppSpec, module: str, limits: Limits) -> Self:
        for path in spec.allow_paths:
            await _check_path(path, limits.import_seconds)
        process = await fork_server.fork(limits.app_mib * MIB, _model_directories(spec), spec.allow_paths)
        host = cls(process, name, spec.source_filename, module, limits)
        try:
            await host._connect()
            host.description = await host._load(spec)
            host._is_loaded = True
        except BaseException:
            host.close()
            raise
        return host

    async def _connect(self) -> None:
        connection = self._process.channel.take_connection()
        await self._loop.create_unix_connection(lambda: self._connection, sock=connection)
        self._ending = asyncio.create_task(self._wait_end())

    async def _load(self, spec: AppSpec) -> AppDescription:
        load = pb.LoadApp(name=self._name, spec=spec.model_dump_json().encode(), module=self._module)
        try:
            async with asyncio.timeout(self._limits.import_seconds):
                reply = await self.call(pb.HostCommand(load=load))
        except TimeoutError:
            location = await self._process.trace(self._source)
            limit = f"{self._limits.import_seconds} s ({self._limits.hint('import-seconds')})"
            reason = f"importing the app takes longer than {limit}: load large data in executors"
            raise DefinitionError(f"{location}: {reason}" if location else reason) from None
        except AppHostLostError as error:
            message = f"{error.location}: {error.reason}" if error.location else error.reason
            raise (KilledWhileLoadingError if error.is_kill else DefinitionError)(message) from error
        if reply.WhichOneof("kind") == "error":
            hint = f" ({self._limits.hint('app-mib')})" if reply.error.is_exhausted else ""
            raise (DefinitionError if reply.error.is_definition else AppLoadError)(f"{reply.error.message}{hint}")
        return AppDescription.model_validate_json(reply.loaded.description)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lost(self) -> AppHostLostError | None:
        """The reason for the end of the host, or None while it runs."""
        return self._lost.result() if self._lost.done() else None

    async def wait_lost(self) -> AppHostLostError:
        """Waits until the host has ended."""
        return await asyncio.shield(self._lost)

    async def call(self, command: pb.HostCommand, rest: Sequence[bytes] = ()) -> pb.HostReply:
        """Numbers and sends the command. Returns the reply, which may be an error.

        Args:
            rest: the encoding of further fields of the command, which is not copied.

        Raises:
            AppHostLostError: the host has ended.
            MessageSizeError: the command is too large.
        """
        if self.lost is not None:
            raise self.lost.copy()
        self._calls += 1
        command.call = self._calls
        self.send(command, rest)
        reply: asyncio.Future[pb.HostReply] = self._loop.create_future()
        self._replies[command.call] = reply
        try:
            return await reply
        finally:
            del self._replies[command.call]

    async def run_side_effect(self, session: int) -> pb.HostReply:
        """Runs the call for which the last run of a session waits. A call that takes too long has no value.

        Raises `AppHostLostError` if the host ends meanwhile.
        """
        seconds = self._limits.recorded_seconds
        command = pb.HostCommand(run_side_effect=pb.RunSideEffect(session=session, deadline=monotonic() + seconds))
        try:
            async with asyncio.timeout(seconds):
                return await self.call(command)
        except TimeoutError:
            error = f"it has not returned within {seconds} s ({self._limits.hint('recorded-seconds')})"
            return pb.HostReply(side_effect=pb.SideEffectResult(error=error, traceback=f"TimeoutError: {error}"))

    def send(self, command: pb.HostCommand, rest: Sequence[bytes] = ()) -> None:
        """Sends a command that has no reply. Does nothing when the host has ended. Raises `MessageSizeError`."""
        if not self._lost.done():
            self._connection.send(command, rest)
            self._sent_commands += 1
            self._watch()

    def _receive(self, reply: pb.HostReply | None) -> None:
        if reply is None:
            self._connection.finish()
        elif self._interruption is not None:
            pass  # All calls fail.
        elif reply.WhichOneof("kind") == "source_read":
            if self.on_source_read is not None:
                self.on_source_read(reply)
        elif (waiting := self._replies.get(reply.call)) is not None and not waiting.done():
            waiting.set_result(reply)

    def _watch(self) -> None:
        """Checks regularly whether the app's code takes too long, until no call is outstanding and no code runs."""
        if self._watch_timer is None and self._interruption is None:
            self._watch_timer = self._loop.call_later(WATCH_SECONDS, self._check)

    def _check(self) -> None:
        self._watch_timer = None
        running, blocked = self._running, self._blocked
        awaited = running or blocked
        if awaited is not None and self._run_timer.seconds(awaited) > self._limits.run_seconds:
            verb = "did not respond" if running is None else "ran"
            self._interruption = asyncio.create_task(self._interrupt(awaited, verb))
        elif awaited is None and self._replies and self._is_loaded:
            self.send(_NO_EFFECT)  # A host that is blocked does not handle it.
        elif awaited is not None or self._replies:
            self._watch()

    @property
    def _blocked(self) -> RunningCode | None:
        """Code that was not called for a command, and that keeps the host from handling the next command."""
        handled = self._process.channel.activity.handled_commands
        return RunningCode(session=0, start_ns=-handled) if handled < self._sent_commands else None

    async def _interrupt(self, running: RunningCode, verb: str) -> None:
        location = await self._process.trace(self._source)
        # The signal for the trace may have ended the code by now, if it was in a system call.
        seconds = self._limits.run_seconds
        reason = f"the app's code {verb} for more than {seconds} s ({self._limits.hint('run-seconds')})"
        self._lose(running, reason, location)

    @property
    def _running(self) -> RunningCode | None:
        return None if self._lost.done() else self._process.channel.activity.read()

    async def _wait_end(self) -> None:
        await self._connection.wait_closed()
        if self._lost.done():
            return
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                self._exit = await self._process.wait()
        except TimeoutError:
            location = await self._process.trace(self._source)
            self._lose(self._running, "the app's process closed its connection", location)
        else:
            self._lose(self._running, f"the app's process {self._exit}", self._process.crash_location(self._source))

    def _lose(self, running: RunningCode | None, reason: str, location: str) -> None:
        if self._lost.done():
            return
        culprit, seconds = (None, 0.0) if running is None else (running.session, running.seconds)
        is_kill = self._exit is not None and self._exit.is_kill
        error = AppHostLostError(culprit, reason, location, seconds, is_kill=is_kill)
        log.warning("app %s: the host %d has ended: %s", self._name, self._process.pid, error)
        self._end(error)

    def _end(self, error: AppHostLostError) -> None:
        self._lost.set_result(error)
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        self._connection.abort(error.reason)
        self._process.close()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error.copy())

    def close(self) -> None:
        """Kills the host. Outstanding calls raise `AppHostLostError`."""
        if not self._lost.done():
            self._end(AppHostLostError(None, "the app's process was stopped", ""))


async def _check_path(path: str, seconds: float) -> None:
    """Raises `DefinitionError` if a path does not exist, and `AppLoadError` if its file system hangs."""
    try:
        async with asyncio.timeout(seconds):
            exists = await run_in_daemon_thread(os.path.exists, path)
    except TimeoutError:
        raise AppLoadError(f"allow_paths: the file system of {path} has not responded within {seconds:g} s") from None
    if not exists:
        raise DefinitionError(f"allow_paths: {path} does not exist where the gateway runs: create it")


def _model_directories(spec: AppSpec) -> list[str]:
    """Returns the directories that describe the models of an app without source."""
    models = () if spec.model is None else (spec.model.id, spec.model.drawer)
    return [model for model in models if model is not None and os.path.isabs(model)]
