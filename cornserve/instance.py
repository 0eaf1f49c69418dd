"""The instance that runs for a home: who it is, and that there is only one."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from json import dumps, loads

from cornserve.files import write_whole
from cornserve.home import Home

CLOCK_TOLERANCE = 2.0
"""Linux tells the start of a process relative to the clock, which may have been adjusted since."""


class HomeTakenError(Exception):
    """Processes of another instance use the home."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A supervisor and the address of its gateway, as the home's instance file has them."""

    pid: int
    started: float
    """Seconds since the epoch; with `pid`, it names the process uniquely."""
    url: str

    @classmethod
    def of_this_process(cls, url: str) -> Instance:
        import psutil

        return cls(os.getpid(), psutil.Process().create_time(), url)

    @classmethod
    def recorded(cls, home: Home) -> Instance | None:
        """What the file says, also if that instance was killed."""
        try:
            return cls(**loads(home.instance.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @classmethod
    def running(cls, home: Home) -> Instance | None:
        instance = cls.recorded(home)
        return instance if instance is not None and instance.is_running() else None

    def record(self, home: Home) -> None:
        write_whole(home.instance, dumps(asdict(self)) + "\n")

    def is_running(self) -> bool:
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < CLOCK_TOLERANCE
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


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
