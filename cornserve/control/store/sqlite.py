"""The store of a local instance: one SQLite file that several processes share.

Every write is one transaction, and every read one statement, so a process may be killed at any time. Writes
and reads have a connection each: who reads never waits for a writer, be it of another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

from cornserve.control.store.base import (
    AlreadyExistsError,
    Change,
    ConflictError,
    ExpiredError,
    Listing,
    NotFoundError,
    Record,
    RecordKind,
    Spec,
    Status,
)
from cornserve.control.store.sqlite_connection import LogState, SqliteConnection, log_state, prepare
from cornserve.control.store.sqlite_rows import (
    RecordRow,
    WriteTransaction,
    changes_after,
    find,
    find_all,
    newest_version,
)

POLL_SECONDS = 0.1
"""How often a watch looks whether other processes have written: SQLite does not tell."""

MAX_POLLS = 10
"""After which it reads in any case: the log shows a write a little before it can be read, and two within a tick of the
system's clock as one."""


class SqliteStore:
    def __init__(
        self, path: Path, reader: SqliteConnection, writer: SqliteConnection, keep: int, resources: AsyncExitStack
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._keep = keep
        self._resources = resources
        self._written = asyncio.Event()
        """The next write of this process; each has an event of its own."""

    @classmethod
    async def open(cls, path: Path, *, keep: int = 1000) -> Self:
        """Opens the store, or creates it. Watches may lie `keep` changes behind before they expire.

        Raises `StoreUnavailableError`.
        """
        if keep < 1:
            raise ValueError(f"a store keeps at least one change, not {keep}")
        await asyncio.to_thread(prepare, path)
        async with AsyncExitStack() as resources:
            reader = await resources.enter_async_context(SqliteConnection.open(path))
            writer = await resources.enter_async_context(SqliteConnection.open(path))
            return cls(path, reader, writer, keep, resources.pop_all())

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        async with self._write() as write:
            if await find(self._writer, kind.name, name):
                raise AlreadyExistsError(kind.name, name)
            row = RecordRow(
                kind=kind.name,
                name=name,
                uid=str(uuid4()),
                generation=1,
                spec_version=write.version,
                version=write.version,
                spec=spec.model_dump_json(),
                status=kind.status().model_dump_json(),
            )
            return (await write.put(row)).record(kind)

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        return (await _existing(self._reader, kind.name, name)).record(kind)

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        rows, version = await find_all(self._reader, kind.name)
        return Listing([row.record(kind) for row in rows], version)

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        async with self._write() as write:
            row = await _existing(self._writer, kind.name, name)
            _refuse_conflict(row, version, row.spec_version)
            record = row.record(kind)
            if record.spec == spec:
                return record
            row = row._replace(generation=row.generation + 1, spec_version=write.version, spec=spec.model_dump_json())
            return (await write.put(row)).record(kind)

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        async with self._write() as write:
            row = await _existing(self._writer, kind.name, name)
            _refuse_conflict(row, version, row.version)
            record = row.record(kind)
            if record.status == status:
                return record
            return (await write.put(row._replace(status=status.model_dump_json()))).record(kind)

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        async with self._write() as write:
            await write.delete(await _existing(self._writer, kind.name, name))

    async def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncIterator[Change[Spec, Status]]:
        newest = await newest_version(self._reader)
        if version > newest:
            raise ExpiredError(f"version {version} is not of this store, which is at {newest}: list again")
        while True:
            # Taken before looking: a write that comes between the look and the wait ends the wait at once.
            written, log = self._written, log_state(self._path)
            changes = await changes_after(self._reader, version)
            for logged in changes:
                version = logged.row.version
                if logged.row.kind == kind.name:
                    yield logged.change(kind)
            if not changes:
                await self._until_written(log, written)

    async def _until_written(self, log: LogState | None, written: asyncio.Event) -> None:
        """Returns when there may be something to see."""
        for _ in range(MAX_POLLS):
            await _happens(written, POLL_SECONDS)
            if written.is_set() or log is None or log != log_state(self._path):
                return

    async def close(self) -> None:
        await self._resources.aclose()
        self._written.set()  # so that watches notice

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[WriteTransaction]:
        async with self._writer.transaction():
            yield WriteTransaction(self._writer, await newest_version(self._writer) + 1, self._keep)
        self._written.set()
        self._written = asyncio.Event()


async def _existing(connection: SqliteConnection, kind: str, name: str) -> RecordRow:
    row = await find(connection, kind, name)
    if row is None:
        raise NotFoundError(kind, name)
    return row


def _refuse_conflict(row: RecordRow, known: int, written: int) -> None:
    if written > known:
        raise ConflictError(f"{row.kind} {row.name!r} has changed at version {written}, after {known}: read it again")


async def _happens(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
