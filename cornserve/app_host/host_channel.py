"""The objects that an app host and its parent share."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Self

from cornserve.app_host.activity import Activity

MAX_DUMP_BYTES: Final = 64 << 10
"""The part of the stack file that is read, from its end. The app's code can write to the file."""


class HostChannel:
    """The parent's part: a connected socket, the activity page, and the file to which the host writes its stack."""

    def __init__(self, connection: socket.socket, activity: Activity, stack_dumps: int) -> None:
        self._connection = connection
        self.activity = activity
        self._stack_dumps = stack_dumps
        self._is_closed = False

    @classmethod
    @contextmanager
    def create(cls) -> Iterator[tuple[Self, list[int]]]:
        """Yields a channel, and the descriptors for the host: its socket, the activity page, and the stack file.

        The context closes the host's descriptors. If it fails, it also closes the channel.
        """
        with ExitStack() as opened, ExitStack() as temporary:
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            temporary.callback(theirs.close)
            ours.setblocking(False)
            page = Activity.create_file()
            temporary.callback(os.close, page)
            stack_dumps = os.memfd_create("cornserve-stacks")
            opened.callback(os.close, stack_dumps)
            channel = cls(ours, Activity(page), stack_dumps)
            opened.pop_all()
            opened.callback(channel.close)
            yield channel, [theirs.fileno(), page, stack_dumps]
            opened.pop_all()

    def take_connection(self) -> socket.socket:
        """Returns the socket, which the caller then closes."""
        return socket.socket(fileno=self._connection.detach())

    @property
    def dumped_bytes(self) -> int:
        """The size of the stack file."""
        return 0 if self._is_closed else os.fstat(self._stack_dumps).st_size

    def read_dumps(self, start: int = 0) -> str:
        """Returns the content of the stack file from the byte `start`."""
        end = self.dumped_bytes
        start = max(start, end - MAX_DUMP_BYTES)
        content = b"" if self._is_closed else os.pread(self._stack_dumps, end - start, start)
        return content.decode(errors="replace")

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()
            self.activity.close()
            os.close(self._stack_dumps)
