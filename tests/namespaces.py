"""Runs processes like the containers of pods: with their own process ids and mounts, on nodes with their own tmpfs."""

from __future__ import annotations

import asyncio
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

_MOUNT_TMPFS = 'mount -t tmpfs -o "size=$1" cornserve "$2" && echo mounted && read -r _'

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Node:
    """A mount namespace with a tmpfs at `shared_memory`, which all pods of the node see."""

    pid: int
    shared_memory: Path

    @property
    def _enter(self) -> list[str]:
        user = ["--user", "--preserve-credentials"] if _unshare_user() else []
        return ["nsenter", f"--target={self.pid}", "--mount", *user]

    def pod(self, kernel: Path | None = None) -> list[str]:
        """Returns the prefix of a command that runs in a container.

        Args:
            kernel: a file with the boot id that the container sees, in place of this machine's.
        """
        namespaces = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        mounts = f"mount --bind {kernel} {_BOOT_ID} && " if kernel else ""
        return [*self._enter, *namespaces, "sh", "-c", f'{mounts}exec "$@"', "sh"]

    def segments(self) -> list[str]:
        """Returns the names of the files in shared memory."""
        listing = subprocess.run([*self._enter, "ls", str(self.shared_memory)], stdout=subprocess.PIPE, check=True)
        return listing.stdout.decode().split()


@asynccontextmanager
async def running_node(shared_memory: Path, size_mib: int) -> AsyncIterator[Node]:
    """Mounts a tmpfs at an existing directory, where only this node sees it. Skips the test without namespaces."""
    command = ["unshare", *_unshare_user(), "--mount", "sh", "-c", _MOUNT_TMPFS, "sh", f"{size_mib}M"]
    holder = await asyncio.create_subprocess_exec(*command, str(shared_memory), stdin=PIPE, stdout=PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert await holder.stdout.readline() == b"mounted\n"
        yield Node(holder.pid, shared_memory)
    finally:
        holder.stdin.close()
        await holder.wait()


@cache
def _unshare_user() -> Sequence[str]:
    """Returns the options with which this user may create namespaces."""
    options: Sequence[str]
    for options in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *options, "--mount", "--pid", "--fork", "--mount-proc", "true"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return options
    pytest.skip("this user may not create namespaces for mounts and processes")
