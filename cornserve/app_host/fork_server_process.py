"""Starts and stops the process of a fork server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Self

from cornserve.access import SECRETS

STOP_SECONDS = 5.0


class ForkServerProcess:
    """A running fork server, and the packet socket that connects this process with it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, temporary: str) -> None:
        self._process = process
        self._temporary = temporary
        self.connection = connection

    @classmethod
    def start(cls, module: str = "cornserve.app_host") -> Self:
        """Starts a fork server, without the clients' secrets. Blocks for milliseconds. It inherits the output.

        Args:
            module: the main module of the fork server.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = theirs.fileno()
        temporary = tempfile.mkdtemp(prefix="cornserve-apps-")
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(descriptor), temporary],
                env={name: value for name, value in os.environ.items() if name not in SECRETS},
                stdin=subprocess.DEVNULL,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        ours.setblocking(False)
        return cls(process, ours, temporary)

    def stop(self) -> None:
        """Ends the fork server and its processes. Blocks until it has ended."""
        self.connection.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._temporary, ignore_errors=True)  # A fork server that was killed has not done so.
