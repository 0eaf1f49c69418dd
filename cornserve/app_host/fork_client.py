"""Starts app hosts through a fork server."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cornserve.app_host.errors import ForkServerError
from cornserve.app_host.fork_messages import (
    FORK_REPLY,
    MAX_MESSAGE_BYTES,
    ForkFailed,
    ForkRequest,
    ForkSucceeded,
    ProcessEnded,
)
from cornserve.app_host.fork_server_process import ForkServerProcess
from cornserve.app_host.host_channel import HostChannel
from cornserve.app_host.host_process import HostProcess

FORK_SECONDS: Final = 30.0
"""The timeout for a fork, including the start of the fork server before the first one."""

_request_numbers: Final = itertools.count(1)


class ForkServer:
    """Starts a fork server before the first fork, and again when it has died.

    Args:
        start: starts a fork server's process. Blocks.
    """

    def __init__(self, start: Callable[[], ForkServerProcess] = ForkServerProcess.start) -> None:
        self._start = start
        self._server: _RunningServer | None = None
        self._turn = asyncio.Lock()
        """Held during a fork."""

    async def fork(self, memory_bytes: int, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> HostProcess:
        """Starts an app host. Raises `ForkServerError`.

        Args:
            memory_bytes: the memory that it may allocate.
            readable: paths that it may read, besides those that all hosts may read.
            writable: paths that it may read and change.
        """
        number = next(_request_numbers)
        request = ForkRequest(
            number=number, memory_bytes=memory_bytes, readable=list(readable), writable=list(writable)
        )
        async with self._turn:
            try:
                async with asyncio.timeout(FORK_SECONDS):
                    try:
                        return await (await self._running_server()).fork(request)
                    except ConnectionError:  # It has died.
                        await self._stop()
                        return await (await self._running_server()).fork(request)
            except TimeoutError:
                await self._stop()
                raise ForkServerError(f"the fork server has not started a process within {FORK_SECONDS:g} s") from None
            except OSError as error:
                raise ForkServerError(f"the fork server cannot start a process: {error}") from error

    async def _running_server(self) -> _RunningServer:
        if self._server is None or self._server.has_ended:
            await self._stop()
            self._server = _RunningServer(await asyncio.to_thread(self._start))
        return self._server

    async def close(self) -> None:
        """Kills all hosts and stops the fork server."""
        async with self._turn:
            await self._stop()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.disconnect()
            await asyncio.to_thread(server.process.stop)


class _RunningServer:
    """The connection to the process of a fork server."""

    def __init__(self, process: ForkServerProcess) -> None:
        self.process = process
        self.has_ended = False
        self._forking: dict[int, _PendingFork] = {}
        """Forks by number."""
        self._hosts: dict[int, HostProcess] = {}
        """The running hosts, by pid."""
        asyncio.get_running_loop().add_reader(process.connection, self._read)

    async def fork(self, request: ForkRequest) -> HostProcess:
        """Raises `OSError` if the fork fails, and `ConnectionError` if the server ends."""
        if self.has_ended:
            raise ConnectionError("the fork server has ended")
        with HostChannel.create() as (channel, descriptors):
            fork = self._forking[request.number] = _PendingFork(channel, asyncio.get_running_loop().create_future())
            try:
                socket.send_fds(self.process.connection, [request.model_dump_json().encode()], descriptors)
                return await asyncio.shield(fork.host)
            except asyncio.CancelledError:
                fork.host.add_done_callback(_close_host)
                raise
            finally:
                del self._forking[request.number]

    def _read(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(
                self.process.connection, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except ConnectionError:
            packet, descriptors = b"", []
        if not packet:
            self.disconnect()
            return
        match FORK_REPLY.validate_json(packet):
            case ForkSucceeded(number=number, pid=pid):
                self._add(number, pid, descriptors[0])
            case ForkFailed(number=number, message=message):
                fork = self._forking.get(number)
                if fork is not None and not fork.host.done():
                    fork.host.set_exception(OSError(message))
            case ProcessEnded(pid=pid, status=status):
                host = self._hosts.pop(pid, None)
                if host is not None:
                    host.set_exit(status)

    def _add(self, number: int, pid: int, pidfd: int) -> None:
        fork = self._forking.get(number)
        if fork is None or fork.host.done():  # The caller was cancelled.
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return
        host = self._hosts[pid] = HostProcess(pid, pidfd, fork.channel)
        fork.host.set_result(host)

    def disconnect(self) -> None:
        """Ends the forks, and kills the hosts."""
        if self.has_ended:
            return
        self.has_ended = True
        asyncio.get_running_loop().remove_reader(self.process.connection)
        for fork in self._forking.values():
            if not fork.host.done():
                fork.host.set_exception(ConnectionError("the fork server has ended"))
        for host in self._hosts.values():
            host.kill()
            host.set_exit(-signal.SIGKILL)
        self._hosts.clear()


class _PendingFork(NamedTuple):
    channel: HostChannel
    host: asyncio.Future[HostProcess]


def _close_host(host: asyncio.Future[HostProcess]) -> None:
    if not host.cancelled() and host.exception() is None:
        host.result().close()
