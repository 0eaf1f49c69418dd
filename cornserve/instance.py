"""The instance that runs for a home: who it is, and that there is only one."""

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


class HomeTakenError(Exception):
    """Processes of another instance use the home."""


class Instance(ProcessId):
    """A supervisor and the address of its gateway, as the home's instance file has them."""

    url: str

    @classmethod
    def of_this_process(cls, url: str) -> Instance:
        return cls.of(os.getpid(), url=url)

    @classmethod
    def recorded(cls, home: Home) -> Instance | None:
        """What the file says, also if that instance was killed."""
        try:
            return cls.model_validate_json(home.instance.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    @classmethod
    def running(cls, home: Home) -> Instance | None:
        instance = cls.recorded(home)
        return instance if instance is not None and instance.alive() else None

    def record(self, home: Home) -> None:
        write_atomically(home.instance, self.model_dump_json() + "\n")


@contextmanager
def sole_use(home: Home, *, patience: float = 0) -> Iterator[int]:
    """Keeps every other instance away from the home, by a lock whose file descriptor it gives.

    Processes that inherit the descriptor hold the lock with us: the home is free when the last of them has ended.

    Raises:
        HomeTakenError: the home was not free within `patience` seconds.
    """
    home.path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(home.instance.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise HomeTakenError(f"another instance uses {home.path}") from None
                time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)
