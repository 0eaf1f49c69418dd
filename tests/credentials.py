"""The credentials of processes that tests start without an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cornserve.instance_secret import InstanceSecret
from cornserve.wire.credentials import ConnectionCredentials

CREDENTIALS: Final = ConnectionCredentials(InstanceSecret(bytes(range(32))))


def write_secret(directory: Path) -> Path:
    """Creates the file of the secret of `CREDENTIALS`."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "secret"
    file.touch(0o600)
    file.write_text(CREDENTIALS.secret.key.hex())
    return file
