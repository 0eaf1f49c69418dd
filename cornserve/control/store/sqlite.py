"""The store of a local instance: one SQLite file that several processes share.

Every write is one transaction and every read is one statement, so a process may be killed at any time. Reads and writes
use separate connections: a reader never waits for a writer of this or another process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self
from uuid import uuid4

from cornserve.concurrency import Broadcast
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
    StoreUnavailableError,
    UnreadableRecord,
    UnreadableRecordError,
)
from cornserve.control.store.file_changes import FileChanges
from cornserve.control.store.sqlite_connection import SqliteConnection, StoreConnections
from cornserve.control.store.sqlite_errors import repair_command
from cornserve.control.store.sqlite_mirror import StoreMirror
from cornserve.control.store.sqlite_rows import (
    RecordRow,
    WriteTransaction,
    all_records,
    changes_after,
    find_record,
    list_records,
    newest_version,
)
from cornserve.control.store.sqlite_schema import prepare_store

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Interval at which the content of the file is compared with the mirror."""

FIRST_CHECK_SECONDS = 0.01
"""The time after which a watch checks again for commits of other processes, after their files have changed. A commit is
visible shortly after its last write to a file. The time doubles with each check."""

POLL_SECONDS = 5.0
"""The longest time between two checks, for commits without a notification."""

UNNOTIFIED_POLL_SECONDS = 0.1
"""The time between two checks without notifications, or while commits cannot be detected."""


class SqliteStore:
    def __init__(
        self,
        path: Path,
        connections: StoreConnections | None = None,
        *,
        keep: int = 1000,
        mirror: StoreMirror | None = None,
    ) -> None:
        """Without `connections`, the store connects when it is used. Its file must exist then.

        Args:
            mirror: keeps the records in memory, and writes the file again if it is lost while the store is used.
                Without it, a file that has lost records is refused.
        """
        self._path = path
        self._mirror = mirror
        self._newest = 0
        """The newest version that a listing or a watch has read."""
        self._connections = connections
        self._keep = keep
        self._connecting = asyncio.Lock()
        self._is_closed = False
        self._writes = Broadcast()
        """Notified after each write of this process, and after changes of the files."""
        self._file_changes: FileChanges | None = None

    @classmethod
    async def open(cls, path: Path, *, keep: int = 1000) -> Self:
        """Opens or creates the store. A watch expires when it is more than `keep` changes behind.

        Raises `StoreUnavailableError`.
        """
        if keep < 1:
            raise ValueError(f"invalid number of changes to keep: {keep}: use at least one")
        await asyncio.to_thread(prepare_store, path)
        return cls(path, await StoreConnections.open(path), keep=keep)

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        async with self._write() as write:
            if await find_record(write.connection, kind.name, name):
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
            return self._to_record(kind, await write.put_record(row))

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        reader = (await self._connect()).reader
        return self._to_record(kind, await _find_existing(reader, kind.name, name))

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        reader = (await self._connect()).reader
        rows, version = await list_records(reader, kind.name)
        self._newest = max(self._newest, version)
        if self._mirror is not None:  # Changes before this listing may not be read any more.
            self._mirror.load(await all_records(reader), version)
        listing: Listing[Spec, Status] = Listing([], version)
        for row in rows:
            try:
                listing.records.append(self._to_record(kind, row))
            except UnreadableRecordError as error:
                listing.unreadable.append(UnreadableRecord(row.name, str(error)))
        return listing

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        async with self._write() as write:
            row = await _find_existing(write.connection, kind.name, name)
            _check_conflict(row, version, row.spec_version)
            record = self._to_record(kind, row)
            if record.spec == spec:
                return record
            row = row._replace(generation=row.generation + 1, spec_version=write.version, spec=spec.model_dump_json())
            return self._to_record(kind, await write.put_record(row))

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        async with self._write() as write:
            row = await _find_existing(write.connection, kind.name, name)
            _check_conflict(row, version, row.version)
            record = self._to_record(kind, row)
            if record.status == status:
                return record
            return self._to_record(kind, await write.put_record(row._replace(status=status.model_dump_json())))

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        async with self._write() as write:
            await write.delete_record(await _find_existing(write.connection, kind.name, name))

    async def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncGenerator[Change[Spec, Status], None]:
        connections = await self._connect()
        newest = await newest_version(connections.reader)
        if version > newest:
            raise ExpiredError(f"version {version} is newer than the store, which is at {newest}: list again")
        self._start_notifications()
        while True:
            # Taken before the read: a write between the read and the wait ends the wait immediately.
            write, data_version = self._writes.next_change(), connections.commits.data_version()
            changes = await changes_after(connections.reader, version)
            for logged in changes:
                version = logged.row.version
                self._newest = max(self._newest, version)
                if self._mirror is not None:
                    self._mirror.apply(logged)
                if logged.row.kind == kind.name:
                    yield logged.to_change(kind)
            if not changes:
                await self._wait_for_commit(connections, write, data_version)

    def _start_notifications(self) -> None:
        """Starts the notifications of changes to the files, if the system has them."""
        if self._file_changes is None and not self._is_closed:
            try:
                self._file_changes = FileChanges(self._path.parent, self._path.name, self._writes.notify)
            except OSError as error:
                log.warning(
                    "changes of the store %s are found by polling, because inotify fails: %s", self._path, error
                )

    async def _wait_for_commit(
        self, connections: StoreConnections, write: asyncio.Event, data_version: int | None
    ) -> None:
        """Returns after a commit since `data_version` was read, or at the next check if it was not readable (None)."""
        is_notified = self._file_changes is not None
        pause = POLL_SECONDS if is_notified and data_version is not None else UNNOTIFIED_POLL_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await write.wait()
            if not (self._is_closed or connections.is_current):
                raise StoreUnavailableError(f"the store {self._path} has been replaced or damaged: list again")
            if self._is_closed or data_version is None or data_version != connections.commits.data_version():
                return
            if is_notified:
                pause = FIRST_CHECK_SECONDS if write.is_set() else min(2 * pause, POLL_SECONDS)
            write = self._writes.next_change()

    async def close(self) -> None:
        self._is_closed = True
        if self._file_changes is not None:
            self._file_changes.close()
            self._file_changes = None
        if self._connections is not None:
            await self._connections.close()
        self._writes.notify()  # Ends the watches with `StoreUnavailableError`.

    def _to_record(self, kind: RecordKind[Spec, Status], row: RecordRow) -> Record[Spec, Status]:
        try:
            return row.to_record(kind)
        except UnreadableRecordError as error:
            raise UnreadableRecordError(f"{error}: run {repair_command(self._path)}") from error

    async def _connect(self) -> StoreConnections:
        """Returns connections to the store's present file. A repair may have replaced the file."""
        async with self._connecting:
            connections = self._connections
            if connections is not None and (self._is_closed or connections.is_current):
                return connections
            if self._is_closed:
                raise StoreUnavailableError(f"the store {self._path} is closed")
            if self._mirror is not None:
                await asyncio.to_thread(self._mirror.restore)
            current = await StoreConnections.open(self._path)
            try:
                await self._check_newest(current)
            except BaseException:
                await current.close()
                raise
            self._connections = current
            if connections is not None:
                await connections.close()
            return current

    async def _check_newest(self, connections: StoreConnections) -> None:
        """Raises `StoreUnavailableError` if another file has lost what was read here."""
        newest = await newest_version(connections.reader)
        if newest < self._newest:
            raise StoreUnavailableError(
                f"the store {self._path} was replaced by an older or an empty one: the controller writes it again "
                "from memory within seconds; if it does not run, use `cornserve down --keep-apps` and `cornserve up`"
            )

    async def watch_file(self) -> None:
        """Makes the store connect again if another program overwrites the file. Needs the mirror. Runs until
        cancelled."""
        assert self._mirror is not None
        checked: list[tuple[int, int, int]] | None = None
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            state = _file_state(self._path)
            if state == checked:
                continue
            with suppress(StoreUnavailableError):
                if not await asyncio.to_thread(self._mirror.find_loss):
                    checked = state
                elif self._connections is not None:
                    self._connections.mark_damaged()

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[WriteTransaction]:
        writer = (await self._connect()).writer
        async with writer.transaction():
            yield WriteTransaction(writer, await newest_version(writer) + 1, self._keep)
        self._writes.notify()


async def _find_existing(connection: SqliteConnection, kind: str, name: str) -> RecordRow:
    row = await find_record(connection, kind, name)
    if row is None:
        raise NotFoundError(kind, name)
    return row


def _check_conflict(row: RecordRow, known: int, written: int) -> None:
    if written > known:
        raise ConflictError(f"{row.kind} {row.name!r} has changed at version {written}, after {known}: read it again")


def _file_state(path: Path) -> list[tuple[int, int, int]]:
    """Returns numbers that differ after a program has written to the files of the store, or replaced them."""
    states = []
    for suffix in ("", "-wal"):
        with suppress(OSError):
            found = os.stat(f"{path}{suffix}")
            states.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return states
