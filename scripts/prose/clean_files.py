"""Remembers files without findings, so that a check reads only what has changed."""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

_LIMIT = 100_000
"""The file is replaced when it has more lines than this (6 MB)."""


class CleanFiles:
    """The names and contents of files without findings, as hashes in a file that all checkouts of a user share."""

    def __init__(self, file: Path) -> None:
        """A change of the linter invalidates all hashes."""
        self._file = file
        linter = b"\0".join(part.read_bytes() for part in sorted(Path(__file__).parent.glob("*.py")))
        self._salt = hashlib.sha256(version("proselint").encode() + linter).digest()
        self._hashes = set(file.read_text().split()) if file.exists() else set()
        self._added: set[str] = set()

    def __contains__(self, file: Path) -> bool:
        return self._hash(file) in self._hashes

    def add(self, file: Path) -> None:
        self._added.add(self._hash(file))

    def save(self) -> None:
        hashes = self._added if len(self._hashes) > _LIMIT else self._hashes | self._added
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        partial.write_text("\n".join(sorted(hashes)))
        partial.replace(self._file)

    def _hash(self, file: Path) -> str:
        return hashlib.sha256(b"\0".join([self._salt, str(file).encode(), file.read_bytes()])).hexdigest()
