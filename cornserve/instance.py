"""The instance file and the lock of a home: at most one instance runs per home."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from pydantic import Field, ValidationError

from cornserve.atomic_files import IrregularFileError, read_regular_file, write_atomically
from cornserve.home import Home
from cornserve.process_id import ProcessId
from cornserve.pull_protocol import PullProtocol

LOCK_SECONDS = 5.0
"""The time in which another command releases the home."""

REWRITE_SECONDS = 1.0
"""The interval at which a running supervisor checks its instance file."""


class HomeInUseError(Exception):
    """Processes of another instance use the home."""


class Instance(ProcessId):
    """The content of a home's instance file: the supervisor's process id and the URLs of the gateways."""

    url: str
    """The URL that all gateways share."""
    gateways: list[str]
    """A URL for each gateway, which no other gateway serves."""
    slots: list[str] = Field(default_factory=list)
    """The types of its slots, as `cornserve up --slots` reads them."""
    gpus: int | None = None
    cpu_slots: int | None = None
    """Its other slots, as `cornserve up` reads them."""
    slab_mib: int | None = None
    """The limit of the memory for tensors of each executor."""
    transport: PullProtocol = PullProtocol.AUTO
    """The protocol for tensors of other nodes."""

    @classmethod
    def of_current_process(
        cls,
        url: str,
        gateways: list[str] | None = None,
        slots: Sequence[str] = (),
        *,
        gpus: int | None = None,
        cpu_slots: int | None = None,
        slab_mib: int | None = None,
        transport: PullProtocol = PullProtocol.AUTO,
    ) -> Instance:
        """Returns the content for an instance with one gateway at `url`, or with `gateways`, which share it."""
        return cls.from_pid(
            os.getpid(),
            url=url,
            gateways=gateways or [url],
            slots=list(slots),
            gpus=gpus,
            cpu_slots=cpu_slots,
            slab_mib=slab_mib,
            transport=transport,
        )

    @classmethod
    def read(cls, home: Home) -> Instance | None:
        """Returns the content of the instance file, even if that instance was killed, or None without a valid file.

        Raises `OSError` if the file cannot be read, for example because of its permissions.
        """
        try:
            return cls.model_validate_json(read_regular_file(home.instance))
        except (FileNotFoundError, IrregularFileError, ValidationError):
            return None

    @classmethod
    def find_running(cls, home: Home) -> Instance | None:
        """Raises `OSError` if the instance file cannot be read."""
        instance = cls.read(home)
        return instance if instance is not None and instance.alive() else None

    def write(self, home: Home) -> None:
        write_atomically(home.instance, self.model_dump_json() + "\n")

    @asynccontextmanager
    async def written(self, home: Home) -> AsyncIterator[None]:
        """Keeps the instance file during the block: writes it again after it was damaged, and removes it at the end.

        Raises `OSError` if the file cannot be written at the start.
        """
        self.write(home)
        rewriting = asyncio.create_task(self._rewrite_when_damaged(home))
        try:
            yield
        finally:
            rewriting.cancel()
            await asyncio.gather(rewriting, return_exceptions=True)
            with suppress(OSError):
                home.instance.unlink(missing_ok=True)

    async def _rewrite_when_damaged(self, home: Home) -> None:
        while True:
            await asyncio.sleep(REWRITE_SECONDS)
            with suppress(OSError):  # The disk may be full: try again.
                if self.read(home) != self:
                    self.write(home)


@contextmanager
def lock_home(home: Home, *, timeout: float = LOCK_SECONDS) -> Iterator[int]:
    """Locks the home for this instance and yields the lock's file descriptor.

    A child process that inherits the descriptor holds the lock as well: the home is free after the last of these
    processes has exited.

    Raises:
        HomeInUseError: the home is still locked after `timeout` seconds.
    """
    home.path.mkdir(parents=True, exist_ok=True)
    descriptor = _open_lock(home)
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


def _open_lock(home: Home) -> int:
    try:
        return os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS or not home.lock.exists():
            raise
    return os.open(home.lock, os.O_RDONLY | os.O_CLOEXEC)  # The home became read-only after its first use.
