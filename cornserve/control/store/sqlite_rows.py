"""What a SQLite store keeps: a table with the records as they are, and a log of the last changes.

Every write is one change with the next version, so the versions in the log have no gaps: whoever finds the version
after the one it knows has missed nothing. The last change is never dropped; it carries the newest version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cornserve.control.store.base import (
    MAX_RECORD_BYTES,
    Change,
    ChangeType,
    ExpiredError,
    Record,
    RecordKind,
    RecordTooLargeError,
    Spec,
    Status,
)
from cornserve.control.store.sqlite_connection import SqliteConnection

BATCH = 100
"""Changes that are read at once."""


class RecordRow(NamedTuple):
    """A record, in the order of the columns of both tables."""

    kind: str
    name: str
    uid: str
    generation: int
    spec_version: int
    """The version that the spec has been written with."""
    version: int
    spec: str
    status: str

    def record(self, kind: RecordKind[Spec, Status]) -> Record[Spec, Status]:
        return Record(
            name=self.name,
            uid=self.uid,
            generation=self.generation,
            version=self.version,
            spec=kind.spec.model_validate_json(self.spec),
            status=kind.status.model_validate_json(self.status),
        )


class LoggedChange(NamedTuple):
    type: ChangeType
    row: RecordRow

    def change(self, kind: RecordKind[Spec, Status]) -> Change[Spec, Status]:
        return Change(self.type, self.row.version, self.row.record(kind))


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """A write within a transaction: all that it does has one version."""

    connection: SqliteConnection
    version: int
    keep: int
    """How many changes the log holds."""

    async def put(self, row: RecordRow) -> RecordRow:
        size = len(row.spec.encode()) + len(row.status.encode())
        if size > MAX_RECORD_BYTES:
            raise RecordTooLargeError(
                f"{row.kind} {row.name!r} takes {size:,} bytes, and a record holds {MAX_RECORD_BYTES:,}: "
                "store summaries, and keep large data in files"
            )
        row = row._replace(version=self.version)
        await self.connection.rows("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        await self._log(ChangeType.PUT, row)
        return row

    async def delete(self, row: RecordRow) -> None:
        await self.connection.rows("DELETE FROM records WHERE kind = ? AND name = ?", row.kind, row.name)
        await self._log(ChangeType.DELETED, row._replace(version=self.version))

    async def _log(self, type: ChangeType, row: RecordRow) -> None:
        await self.connection.rows("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", type, *row)
        await self.connection.rows("DELETE FROM changes WHERE version <= ?", self.version - self.keep)


async def find(connection: SqliteConnection, kind: str, name: str) -> RecordRow | None:
    rows = await connection.rows("SELECT * FROM records WHERE kind = ? AND name = ?", kind, name)
    return RecordRow(*rows[0]) if rows else None


async def newest_version(connection: SqliteConnection) -> int:
    [(version,)] = await connection.rows("SELECT coalesce(max(version), 0) FROM changes")
    return int(version)


async def find_all(connection: SqliteConnection, kind: str) -> tuple[list[RecordRow], int]:
    """The records, and the version at which they are so: one statement, thus one snapshot."""
    rows = await connection.rows(
        "SELECT newest, records.* FROM (SELECT coalesce(max(version), 0) AS newest FROM changes)"
        " LEFT JOIN records ON kind = ? ORDER BY name",
        kind,
    )
    # Without records, the join still has one row, of nulls.
    return [RecordRow(*row) for _, *row in rows if row[0] is not None], int(rows[0][0])


async def changes_after(connection: SqliteConnection, version: int) -> list[LoggedChange]:
    """The next changes of all kinds, if there are any yet."""
    rows = await connection.rows("SELECT * FROM changes WHERE version > ? ORDER BY version LIMIT ?", version, BATCH)
    changes = [LoggedChange(ChangeType(type), RecordRow(*row)) for type, *row in rows]
    if changes and changes[0].row.version > version + 1:
        raise ExpiredError(f"the changes after version {version} are no longer kept: list again, and watch from there")
    return changes
