"""Finds the app that blocks the event loop of a gateway.

The supervisor shares a page of memory with the gateway. The gateway writes to it which app runs in its process. When
the event loop is blocked, the supervisor adds this app to a file, and gateways run the apps in this file in app hosts.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Self

from cornserve.shared_page import create_page

CURRENT_APP_VARIABLE = "CORNSERVE_CURRENT_APP"
"""The number of the page's file descriptor, in the environment of a process that has a supervisor."""

_BYTES = 256


class CurrentApp:
    """The app that runs at present in a process.

    Args:
        descriptor: a file from `create_file`. It can be closed after this.
    """

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, _BYTES)

    @classmethod
    def of_process(cls) -> Self:
        """Returns the page that the supervisor has passed to this process, or a private one."""
        passed = os.environ.pop(CURRENT_APP_VARIABLE, None)
        descriptor = cls.create_file() if passed is None else int(passed)
        try:
            return cls(descriptor)
        finally:
            os.close(descriptor)

    @staticmethod
    def create_file() -> int:
        """Returns the descriptor of a new page, which processes share by passing the descriptor."""
        return create_page("cornserve-current-app", _BYTES)

    def begin(self, entry: bytes) -> None:
        """Records that an app runs. `entry` is from `encode`."""
        self._page[:_BYTES] = entry

    def end(self) -> None:
        self._page[0] = 0

    def read(self) -> str | None:
        """Returns the name of the app, or None if no app runs."""
        return bytes(self._page).partition(b"\0")[0].decode() or None

    def close(self) -> None:
        self._page.close()

    @staticmethod
    def encode(app: str) -> bytes:
        return app.encode().ljust(_BYTES, b"\0")


def restore_current_app(file: Path, apps: BlockingApps) -> None:
    """Uses a file as the page of this process, where no supervisor passes one.

    An app in the file ran when an earlier process was killed, by a liveness probe for example. It may have blocked
    that process.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, _BYTES)
    page = CurrentApp(descriptor)
    app = page.read()
    if app is not None:
        apps.add(app)
    page.end()
    page.close()
    os.environ[CURRENT_APP_VARIABLE] = str(descriptor)


class BlockingApps:
    """The names of the apps that have blocked a gateway."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, app: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{app}\n")

    def __contains__(self, app: object) -> bool:
        try:
            return app in self._file.read_text().splitlines()
        except FileNotFoundError:
            return False
