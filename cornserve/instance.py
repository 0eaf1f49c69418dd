"""The instance file and the lock of a home: at most one instance runs per home."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from cornserve.atomic_files import write_atomically
from cornserve.home import Home
from cornserve.process_id import ProcessId


class HomeInUseError(Exception):
    """Processes of another instance use the home."""


class Instance(ProcessId):
    """The content of a home's instance file: the supervisor's process id and the gateway's URL."""

    url: str

    @classmethod
    def of_current_process(cls, url: str) -> Instance:
        return cls.from_pid(os.getpid(), url=url)

    @classmethod
    def read(cls, home: Home) -> Instance | None:
        """Returns the content of the instance file, even if that instance was killed."""
        try:
            return cls.model_validate_json(home.instance.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    @classmethod
    def find_running(cls, home: Home) -> Instance | None:
        instance = cls.read(home)
        return instance if instance is not None and instance.alive() else None

    def write(self, home: Home) -> None:
        write_atomically(home.instance, self.model_dump_json() + "\n")


@contextmanager
def lock_home(home: Home, *, timeout: float = 0) -> Iterator[int]:
    """Locks the home for this instance and yields the lock's file descriptor.

    A child process that inherits the descriptor holds the lock as well: the home is free after the last of these
    processes has exited.

    Raises:
        HomeInUseError: the home is still locked after `timeout` seconds.
    """
    home.path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise HomeInUseError(f"another instance uses {home.path}") from None
                time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)
