"""The file of a SQLite store: how it comes into being, and how one talks to it without blocking the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite

from cornserve.control.store.base import StoreUnavailableError

APPLICATION_ID = int.from_bytes(b"Corn", "big")
SCHEMA_VERSION = 1
BUSY_SECONDS = 10.0
"""How long a write waits for those of other processes. Each takes milliseconds: after this, one hangs in mid-write."""

SCHEMA = f"""
BEGIN;
CREATE TABLE records (
    kind TEXT, name TEXT, uid TEXT, generation INTEGER, spec_version INTEGER, version INTEGER, spec TEXT, status TEXT,
    PRIMARY KEY (kind, name)
);
CREATE TABLE changes (
    type TEXT,
    kind TEXT, name TEXT, uid TEXT, generation INTEGER, spec_version INTEGER, version INTEGER, spec TEXT, status TEXT,
    PRIMARY KEY (version)
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


def prepare(path: Path) -> None:
    """Makes sure that `path` is a store: creates it, for its owner's eyes only, unless there is one."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(path):
            # The file of a store is only ever opened by SQLite: closing it again would drop the locks of the process.
            if not path.exists():
                path.touch(mode=0o600)
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
                _prepare(database, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailableError(f"cannot open the store {path}: {error}") from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """SQLite does not wait, but fails, when two connections switch a new file to WAL at once."""
    lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
        database.executescript(SCHEMA)
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreUnavailableError(f"{path} belongs to another program: choose another place for the store")
    if version != SCHEMA_VERSION:
        raise StoreUnavailableError(
            f"{path} has schema {version}, and this version of Cornserve reads schema {SCHEMA_VERSION}: "
            "move the file away, or use the version that wrote it"
        )
    database.execute("PRAGMA journal_mode = WAL")


LogState = tuple[int, int]
"""When it was written last, in nanoseconds, and its size in bytes."""


def log_state(path: Path) -> LogState | None:
    """Of the log that all writes of all processes go to first: another one whenever something is written, unless two
    writes fall within a tick of the system's clock. None: there is no such log.

    To ask for it costs a hundredth of what a query does, which two threads have to wake up for.
    """
    try:
        log = os.stat(f"{path}-wal")
    except OSError:
        return None
    return log.st_mtime_ns, log.st_size


class SqliteConnection:
    """One connection. It works in a thread of its own, in the order in which it is asked."""

    def __init__(self, database: aiosqlite.Connection) -> None:
        self._database = database
        self._transaction = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[SqliteConnection]:
        async with aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None) as database:
            # A crash of the machine may take the last writes, but never the order; a crash of a process takes nothing.
            await database.execute_fetchall("PRAGMA synchronous = NORMAL")
            yield cls(database)

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in await self._database.execute_fetchall(statement, values)]
        except (sqlite3.Error, ValueError) as error:  # `ValueError`: the connection is closed
            raise StoreUnavailableError(f"the store fails: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All or nothing. A task that is cancelled leaves no transaction behind: the roll-back is queued at once."""
        async with self._transaction:
            try:
                await self.rows("BEGIN IMMEDIATE")
                yield
                await self.rows("COMMIT")
            except BaseException:
                with suppress(ValueError):  # closed, and rolled back by that
                    await self._database.rollback()
                raise
