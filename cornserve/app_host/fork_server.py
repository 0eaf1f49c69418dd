"""Forks app hosts from a process that has imported Cornserve: a host starts in milliseconds and shares this memory."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import selectors
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from cornserve.app_host.fork_messages import (
    MAX_MESSAGE_BYTES,
    ForkFailed,
    ForkReply,
    ForkRequest,
    ForkSucceeded,
    ProcessEnded,
)
from cornserve.app_host.forked_process import ForkedProcess
from cornserve.app_host.sandbox import Protection, Sandbox
from cornserve.observe import logs
from cornserve.parent_death import signal_on_parent_death

log = logging.getLogger(__name__)


def run_fork_server(descriptor: int, temporary: str, run_forked: Callable[[ForkedProcess], None]) -> None:
    """Runs a fork server, and `run_forked` in each process that it forks. Does not return.

    Args:
        descriptor: the descriptor of the parent's packet socket.
        temporary: the directory for temporary files of the hosts, which the fork server removes when it ends.
    """
    # A service manager or a terminal signals all processes at once, and the parent then finishes its requests.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # A forked process may get it before it reports stacks.
    signal_on_parent_death(signal.SIGCONT)  # A stopped fork server would not notice the end of its parent.
    logs.configure()
    for gap in Protection.of_machine().gaps:
        log.warning("%s", gap)
    gc.collect()
    gc.freeze()  # The garbage collector would write to the memory that the processes share.
    exit_process = os._exit  # `run_forked` may replace this function.
    status = 1
    try:
        forked = ForkServerLoop(socket.socket(fileno=descriptor), temporary).run()
        if forked is not None:
            run_forked(forked)
        status = 0
    except BaseException:
        log.exception("the process failed")
    finally:
        exit_process(status)  # Threads of the app would keep the process running.


class ForkServerLoop:
    """Serves the requests of the parent process, in a process with one thread.

    Args:
        parent: the packet socket of the parent.
        temporary: the directory in which each host gets one for its temporary files.
    """

    def __init__(self, parent: socket.socket, temporary: str) -> None:
        self._parent = parent
        self._temporary = temporary
        self._lock = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # not all file systems have locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)  # systemd-tmpfiles(8), which removes old files in /tmp, skips it.
        self._selector = selectors.DefaultSelector()
        self._selector.register(parent, selectors.EVENT_READ)
        self._pidfds: dict[int, int] = {}
        """Descriptors of the hosts, and of processes that remove files of a host, by pid."""
        self._directories: dict[int, str] = {}
        """The directories for temporary files of the hosts, by pid."""

    def run(self) -> ForkedProcess | None:
        """Serves until the parent ends. Then kills all processes, and returns None. Returns in each forked process."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._parent:
                    self._reap(key.data)
                    continue
                try:
                    packet, descriptors, _, _ = socket.recv_fds(
                        self._parent, MAX_MESSAGE_BYTES, 3, socket.MSG_CMSG_CLOEXEC
                    )
                except ConnectionResetError:  # The parent has ended without reading all replies.
                    packet, descriptors = b"", []
                if not packet:
                    self._kill_all()
                    shutil.rmtree(self._temporary, ignore_errors=True)
                    return None
                forked = self._fork(ForkRequest.model_validate_json(packet), descriptors)
                if forked is not None:
                    return forked

    def _fork(self, request: ForkRequest, descriptors: list[int]) -> ForkedProcess | None:
        """Returns None in this process."""
        server = os.getpid()
        try:
            directory = tempfile.mkdtemp(dir=self._temporary)
            pid = os.fork()
            if pid == 0:
                self._close()
                readable, writable = map(Path, request.readable), map(Path, request.writable)
                sandbox = Sandbox(Path(directory), tuple(readable), tuple(writable))
                return ForkedProcess(server, request.memory_bytes, sandbox, *descriptors)
            self._watch(pid)
            self._directories[pid] = directory
            self._send(ForkSucceeded(number=request.number, pid=pid), [self._pidfds[pid]])
        except OSError as error:
            self._send(ForkFailed(number=request.number, message=str(error.strerror)))
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _watch(self, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._pidfds[pid] = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, pid)

    def _reap(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _kill_group(pid)  # The app may have started processes.
        _, status = os.waitpid(pid, 0)
        directory = self._directories.pop(pid, None)
        if directory is not None:
            self._send(ProcessEnded(pid=pid, status=os.waitstatus_to_exitcode(status)))
            try:
                os.rmdir(directory)
            except OSError:
                self._remove(directory)

    def _remove(self, directory: str) -> None:
        """Removes the files of a host, in another process: there may be a million."""
        with suppress(OSError):  # The directory of all hosts is removed later.
            pid = os.fork()
            if pid == 0:
                self._close()
                shutil.rmtree(directory, ignore_errors=True)
                os._exit(0)
            self._watch(pid)

    def _send(self, reply: ForkReply, descriptors: Sequence[int] = ()) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # The parent has ended: the next read returns no packet.
            socket.send_fds(self._parent, [reply.model_dump_json().encode()], descriptors)

    def _close(self) -> None:
        """Closes all descriptors of the fork server."""
        self._selector.close()
        self._parent.close()
        os.close(self._lock)
        for pidfd in self._pidfds.values():
            os.close(pidfd)

    def _kill_all(self) -> None:
        for pid in self._pidfds:
            os.kill(pid, signal.SIGKILL)
            _kill_group(pid)
        for pid in self._pidfds:
            os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # The process has not created its group.
        os.killpg(pid, signal.SIGKILL)
