"""Translates errors of SQLite into errors of the store, with a remedy."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from cornserve.control.store.base import StoreDamagedError, StoreUnavailableError

DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of statements. The text of an error is not decodable if it contains damaged text of the schema."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGED_SCHEMA = ("no such table", "no such column", "unsupported file format")

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_READONLY: "make its directory writable",
    sqlite3.SQLITE_BUSY: "another process writes to it for long: retry, or restart that process",
}

_FILE_REMEDIES = {errno.ENOSPC: "free space on its disk", errno.EROFS: "make its directory writable"}

OTHER_REMEDY = "check the permissions and the free space"


def repair_command(store: Path) -> str:
    """Returns the command that repairs a store, for messages."""
    return f"`cornserve doctor --repair --home {store.parent}`"


def damaged(store: Path, reason: str) -> StoreDamagedError:
    return StoreDamagedError(f"the store {store} is damaged: {reason}: run {repair_command(store)}")


def translated(store: Path, error: Exception) -> StoreUnavailableError:
    """Returns the store's error for an error of SQLite, of a closed connection or of the file system."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(store, "its schema is not valid text")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # Higher bits give details.
    if code in _DAMAGED or str(error).startswith(_DAMAGED_SCHEMA):
        return damaged(store, str(error))
    remedy = _REMEDIES.get(code, OTHER_REMEDY)
    if isinstance(error, OSError):
        remedy = _FILE_REMEDIES.get(error.errno or 0, OTHER_REMEDY)
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return StoreUnavailableError(f"cannot access the store {store}: {reason}: {remedy}")
