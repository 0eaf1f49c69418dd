"""The secret that the processes of one instance share. They prove to each other that they have it."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

KEY_BYTES: Final = 32

_FORBIDDEN_MODE: Final = 0o037
"""Other users have no access. The group may read, because a pod reads a Secret of Kubernetes as member of a group."""


class InstanceSecretError(ValueError):
    """The file of the secret cannot be used. The message is for users."""


@dataclass(frozen=True, slots=True)
class InstanceSecret:
    """A random key. The file contains it as hexadecimal digits."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"the secret has {len(self.key)} bytes: it must have {KEY_BYTES}")

    def token(self, purpose: str) -> str:
        """Returns a token for one purpose. It does not reveal the secret or other tokens."""
        return hmac.digest(self.key, b"token\n" + purpose.encode(), "sha256").hex()

    @classmethod
    def load(cls, file: Path) -> Self:
        """Raises `InstanceSecretError` if the file is missing, accessible to other users, or not valid."""
        try:
            with file.open("rb") as opened:
                mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
                content = opened.read(4 * KEY_BYTES)
        except OSError as error:
            raise InstanceSecretError(f"cannot read the instance's secret {file}: {error.strerror}") from error
        if mode & _FORBIDDEN_MODE:
            raise InstanceSecretError(
                f"other users can access the instance's secret {file} (mode {mode:04o}): run `chmod 600 {file}`"
            )
        try:
            return cls(bytes.fromhex(content.decode()))
        except ValueError as error:
            raise InstanceSecretError(
                f"{file} contains no secret of {2 * KEY_BYTES} hexadecimal digits: stop the instance with "
                "`cornserve down --keep-apps` and remove the file, so that `cornserve up` creates another"
            ) from error

    @classmethod
    def load_or_create(cls, file: Path) -> Self:
        """Creates the file with a new secret if it is missing. Concurrent callers get the same secret.

        Raises:
            InstanceSecretError: the file cannot be read.
            OSError: the file cannot be created.
        """
        if not file.exists():
            _create(file)
        return cls.load(file)


def _create(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(KEY_BYTES) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.link(partial, file)
    except FileExistsError:  # another process was faster
        pass
    finally:
        partial.unlink()
