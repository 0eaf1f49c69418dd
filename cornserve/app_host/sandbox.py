"""The sandbox of an app host, which limits the files and processes that the code of an app can reach."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cornserve.app_host.landlock import SIGNALS_VERSION, FileAccess, landlock_version, restrict
from cornserve.app_host.syscall_filter import filter_syscalls, filters_syscalls
from cornserve.home import Home
from cornserve.libc import LIBC

_PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 38, 39
_CAPABILITY_VERSION: Final = 0x20080522

_SYSTEM: Final = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/opt", "/nix/store", "/proc", "/sys"),
    *("/etc/ca-certificates", "/etc/pki", "/etc/ssl", "/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache"),
    *("/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/protocols", "/etc/resolv.conf"),
    *("/etc/services", "/etc/group", "/etc/passwd", "/etc/localtime", "/etc/timezone", "/etc/mime.types"),
    *("/etc/locale.alias", "/etc/os-release"),
)
"""Programs, libraries and settings of the system, which apps may read."""

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class Protection:
    """The means of this machine to limit apps."""

    landlock: int
    """The version of Landlock, or 0."""
    filters_syscalls: bool

    @classmethod
    def of_machine(cls) -> Protection:
        return cls(landlock_version(), filters_syscalls())

    @property
    def gaps(self) -> list[str]:
        """Sentences about things that apps can do because the machine lacks something."""
        gaps = []
        if not self.landlock:
            gaps.append(
                "apps can read the secret, the store and the memory of the instance: the kernel has no Landlock, or a "
                "container's seccomp profile refuses it"
            )
        if not self.filters_syscalls:
            gaps.append(
                "apps can use Unix sockets of other programs, lower the limits of other processes, and change modes of "
                "files: the machine has no seccomp filters, or is not an x86_64"
            )
            if self.landlock < SIGNALS_VERSION:
                gaps.append("apps can kill processes of the instance: Linux is older than 6.12")
        return gaps


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The paths that one app host may use. `enter` applies it to this process."""

    temporary: Path
    """The host's own directory for temporary files."""
    readable: Sequence[Path] = ()
    """Further paths that the app's code may read."""
    writable: Sequence[Path] = ()
    """Further paths that the app's code may read and change."""

    def enter(self) -> None:
        """Applies the sandbox to this process, which has one thread, and to all processes that it starts."""
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
        protection = Protection.of_machine()
        LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _drop_capabilities()
        if protection.landlock:
            restrict(self._allowed(), protection.landlock)
        if protection.filters_syscalls:
            filter_syscalls(protection.landlock)
            os.chmod = _chmod

    def _allowed(self) -> dict[Path, FileAccess]:
        home = Home.default()
        hidden = home.path.resolve()
        allowed: dict[Path, FileAccess] = {}
        for path in (*map(Path, _SYSTEM), *_python_paths(), *self.readable):
            allowed |= _without(path.resolve(), hidden, FileAccess.READ)
        for path in (*map(Path, _DEVICES), *self.writable):
            allowed |= _without(path.resolve(), hidden, FileAccess.ALL)
        return allowed | {home.models: FileAccess.READ, self.temporary: FileAccess.ALL}


def refusal_hint(error: BaseException) -> str:
    """Returns a text that explains an error if this process is in a sandbox, which may have caused it."""
    if not isinstance(error, PermissionError) or not LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0):
        return ""
    if error.filename is not None:
        return ": an app may use only its own files and the paths of `cornserve deploy --allow-path`"
    return ": an app may signal and change only its own processes, and connect only to Internet addresses"


def _python_paths() -> Iterator[Path]:
    """Yields the paths from which Python imports, without the working directory, which `python -m` adds."""
    yield from map(Path, (sys.prefix, sys.base_prefix, *sys.path[0 if sys.flags.safe_path else 1 :]))


def _without(path: Path, hidden: Path, access: FileAccess) -> dict[Path, FileAccess]:
    """Returns the access to the path, without the access to the hidden one, of which names are readable at most."""
    if not hidden.is_relative_to(path):
        return {path: access}
    if path == hidden:
        return {}
    allowed = {path: access & FileAccess.READ_DIR}
    with suppress(OSError):  # It is not for this user.
        for child in path.iterdir():
            if not child.is_symlink():  # It may lead to the hidden path.
                allowed |= _without(child, hidden, access)
    return allowed


def _chmod(
    path: int | str | bytes | os.PathLike[Any], mode: int, *, dir_fd: int | None = None, follow_symlinks: bool = True
) -> None:
    """Replaces `os.chmod`, whose system call is refused for all files, by one for files that the process can open."""
    if isinstance(path, int):
        os.fchmod(path, mode)
        return
    descriptor = os.open(path, os.O_RDONLY | (0 if follow_symlinks else os.O_NOFOLLOW), dir_fd=dir_fd)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _drop_capabilities() -> None:
    """Gives up the privileges of root, if the instance runs as root."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    LIBC.capset(header, (ctypes.c_uint32 * 6)())
