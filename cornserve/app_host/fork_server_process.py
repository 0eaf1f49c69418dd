"""Starts and stops the process of a fork server."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Self

STOP_SECONDS = 5.0


class ForkServerProcess:
    """A running fork server, and the packet socket that connects this process with it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self.connection = connection

    @classmethod
    def start(cls, module: str = "cornserve.app_host") -> Self:
        """Starts a fork server. Blocks for milliseconds. Its output goes to this process's output.

        Args:
            module: the main module of the fork server.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = theirs.fileno()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(descriptor)],
                stdin=subprocess.DEVNULL,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        ours.setblocking(False)
        return cls(process, ours)

    def stop(self) -> None:
        """Ends the fork server and its processes. Blocks until it has ended."""
        self.connection.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
