"""Connects to the file of a SQLite store without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Self

import aiosqlite

from cornserve.control.store.base import StoreDamagedError
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS, translated
from cornserve.control.store.sqlite_schema import BUSY_SECONDS, check_store, connect_existing, existing


class SqliteConnection:
    """A connection with its own thread, which executes statements in order."""

    def __init__(self, path: Path, database: aiosqlite.Connection) -> None:
        self._path = path
        self._database = database
        self._transaction = asyncio.Lock()
        self.is_damaged = False
        """Whether a statement has found that the file is damaged. The file may have been repaired since then."""

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator[SqliteConnection]:
        async with aiosqlite.connect(existing(path), uri=True, timeout=BUSY_SECONDS, isolation_level=None) as database:
            database.text_factory = _decode
            # NORMAL: a crash of the machine may lose the last writes, a crash of a process loses nothing.
            await database.execute_fetchall("PRAGMA synchronous = NORMAL")
            # Moves each write to the database, of which a repair restores more than of a damaged write-ahead log.
            await database.execute_fetchall("PRAGMA wal_autocheckpoint = 1")
            yield cls(path, database)

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Executes a statement and returns all rows."""
        try:
            return [tuple(row) for row in await self._database.execute_fetchall(statement, values)]
        except (sqlite3.Error, ValueError) as error:  # ValueError: the connection is closed.
            unavailable = translated(self._path, error)
            self.is_damaged |= isinstance(unavailable, StoreDamagedError)
            raise unavailable from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commits the block, or rolls it back on any error, including cancellation."""
        async with self._transaction:
            try:
                await self.execute("BEGIN IMMEDIATE")
                yield
                await self.execute("COMMIT")
            except BaseException:
                with suppress(ValueError, sqlite3.Error):  # A closed or damaged connection has no transaction.
                    await self._database.rollback()
                raise


class CommitDetector:
    """Detects commits of other connections, in any process.

    `PRAGMA data_version` reads shared memory in about a microsecond. It therefore runs in the event loop: a query
    through the thread of a `SqliteConnection` costs a hundred times as much.
    """

    def __init__(self, path: Path) -> None:
        self._database = connect_existing(path, timeout=0, isolation_level=None, check_same_thread=False)

    def data_version(self) -> int | None:
        """Returns a number that differs after a commit, or None if it cannot be read now."""
        try:
            (version,) = self._database.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return None
        return int(version)

    def close(self) -> None:
        self._database.close()


class StoreConnections:
    """The connections to one file. They stay with this file when a repair puts another file in its place."""

    def __init__(
        self,
        path: Path,
        reader: SqliteConnection,
        writer: SqliteConnection,
        commits: CommitDetector,
        resources: AsyncExitStack,
    ) -> None:
        self._path = path
        self.reader = reader
        self.writer = writer
        self.commits = commits
        self._resources = resources
        self._file = os.stat(path)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Connects to an existing store. Raises `StoreUnavailableError`."""
        try:
            await asyncio.to_thread(check_store, path)
            async with AsyncExitStack() as resources:
                reader = await resources.enter_async_context(SqliteConnection.open(path))
                writer = await resources.enter_async_context(SqliteConnection.open(path))
                commits = resources.enter_context(closing(await asyncio.to_thread(CommitDetector, path)))
                return cls(path, reader, writer, commits, resources.pop_all())
        except (OSError, *DATABASE_ERRORS) as error:
            raise translated(path, error) from error

    @property
    def is_current(self) -> bool:
        """Whether the path still has the same file, and no statement has found damage."""
        try:
            is_same = os.path.samestat(os.stat(self._path), self._file)
        except OSError:
            return False
        return is_same and not (self.reader.is_damaged or self.writer.is_damaged)

    def mark_damaged(self) -> None:
        """Makes the store connect again: the file was found to be damaged without these connections."""
        self.reader.is_damaged = True

    async def close(self) -> None:
        with suppress(sqlite3.Error):
            await self._resources.aclose()


def _decode(text: bytes) -> str:
    """Decodes damaged text as well, so that one record does not prevent the others from being read."""
    return text.decode(errors="replace")
