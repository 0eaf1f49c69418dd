"""Creates the file of a SQLite store and connects to it without blocking the event loop."""

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
"""Timeout of a write that waits for the writes of other processes, which normally take milliseconds."""

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


def prepare_store(path: Path) -> None:
    """Creates the store, readable by its owner only, or checks that the existing file is a store.

    Raises `StoreUnavailableError`.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _creation_lock(path):
            # Only SQLite may open an existing store: closing another descriptor would release the process's locks.
            if not path.exists():
                path.touch(mode=0o600)
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
                _prepare_schema(database, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailableError(
            f"cannot open the store {path}: {error}: check the permissions and the free space"
        ) from error


@contextmanager
def _creation_lock(path: Path) -> Iterator[None]:
    """Serializes the creation of a store. SQLite fails if two connections switch a new file to WAL concurrently."""
    lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _prepare_schema(database: sqlite3.Connection, path: Path) -> None:
    if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
        database.executescript(SCHEMA)
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreUnavailableError(f"{path} is a database of another program: choose another path for the store")
    if version != SCHEMA_VERSION:
        raise StoreUnavailableError(
            f"{path} has schema {version}, and this version of Cornserve needs schema {SCHEMA_VERSION}: "
            "move the file away, or use the version of Cornserve that wrote it"
        )
    database.execute("PRAGMA journal_mode = WAL")


class SqliteConnection:
    """A connection with its own thread, which executes statements in order."""

    def __init__(self, database: aiosqlite.Connection) -> None:
        self._database = database
        self._transaction = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[SqliteConnection]:
        async with aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None) as database:
            # NORMAL: a crash of the machine may lose the last writes, a crash of a process loses nothing.
            await database.execute_fetchall("PRAGMA synchronous = NORMAL")
            yield cls(database)

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Executes a statement and returns all rows."""
        try:
            return [tuple(row) for row in await self._database.execute_fetchall(statement, values)]
        except (sqlite3.Error, ValueError) as error:  # ValueError: the connection is closed.
            raise StoreUnavailableError(f"cannot access the store: {error}") from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits the block, or rolls it back on any error, including cancellation."""
        async with self._transaction:
            try:
                await self.execute("BEGIN IMMEDIATE")
                yield
                await self.execute("COMMIT")
            except BaseException:
                with suppress(ValueError):  # The connection is closed, which has rolled back the transaction.
                    await self._database.rollback()
                raise


class CommitDetector:
    """Detects commits of other connections, in any process.

    `PRAGMA data_version` reads shared memory in about a microsecond. It therefore runs in the event loop: a query
    through the thread of a `SqliteConnection` costs a hundred times as much.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def data_version(self) -> int | None:
        """Returns a number that differs after a commit, or None if it cannot be read now."""
        try:
            (version,) = self._database.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(version)

    def close(self) -> None:
        self._database.close()
