"""The tables of a SQLite store: the records, and a log of the last changes.

Each write adds one change with the next version, so the log has no gaps: a watcher that finds the next version
has missed nothing. The last change is never deleted, because it contains the newest version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

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
    UnreadableRecordError,
)
from cornserve.control.store.sqlite_connection import SqliteConnection
from cornserve.validation_errors import describe_error

BATCH = 100
"""Maximum number of changes per read."""


class RecordRow(NamedTuple):
    """A record, in the order of the columns of both tables."""

    kind: str
    name: str
    uid: str
    generation: int
    spec_version: int
    """The version that wrote the spec."""
    version: int
    spec: str
    status: str

    def to_record(self, kind: RecordKind[Spec, Status]) -> Record[Spec, Status]:
        """Raises `UnreadableRecordError`."""
        try:
            return Record(
                name=self.name,
                uid=self.uid,
                generation=int(self.generation),
                version=int(self.version),
                spec=kind.spec.model_validate_json(self.spec),
                status=kind.status.model_validate_json(self.status),
            )
        except (ValueError, TypeError) as error:  # TypeError: a column is null.
            reason = describe_error(error.errors()[0]) if isinstance(error, ValidationError) else str(error)
            raise UnreadableRecordError(f"the record of {kind.name} {self.name!r} is damaged: {reason}") from error


class LoggedChange(NamedTuple):
    type: ChangeType
    row: RecordRow

    def to_change(self, kind: RecordKind[Spec, Status]) -> Change[Spec, Status]:
        """Raises `ExpiredError` if the change is damaged: a listing then reports the record."""
        try:
            return Change(self.type, self.row.version, self.row.to_record(kind))
        except UnreadableRecordError as error:
            raise ExpiredError(f"change {self.row.version} cannot be read: {error}: list the records again") from error


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """A write with one version within a transaction."""

    connection: SqliteConnection
    version: int
    keep: int
    """Maximum number of changes in the log."""

    async def put_record(self, row: RecordRow) -> RecordRow:
        size = len(row.spec.encode()) + len(row.status.encode())
        if size > MAX_RECORD_BYTES:
            raise RecordTooLargeError(
                f"{row.kind} {row.name!r} has {size:,} bytes, more than the limit of {MAX_RECORD_BYTES:,}: "
                "store a summary, and keep large data in files"
            )
        row = row._replace(version=self.version)
        await self.connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        await self._log_change(ChangeType.PUT, row)
        return row

    async def delete_record(self, row: RecordRow) -> None:
        await self.connection.execute("DELETE FROM records WHERE kind = ? AND name = ?", row.kind, row.name)
        await self._log_change(ChangeType.DELETED, row._replace(version=self.version))

    async def _log_change(self, type: ChangeType, row: RecordRow) -> None:
        await self.connection.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", type, *row)
        await self.connection.execute("DELETE FROM changes WHERE version <= ?", self.version - self.keep)


async def find_record(connection: SqliteConnection, kind: str, name: str) -> RecordRow | None:
    rows = await connection.execute("SELECT * FROM records WHERE kind = ? AND name = ?", kind, name)
    return RecordRow(*rows[0]) if rows else None


async def newest_version(connection: SqliteConnection) -> int:
    [(version,)] = await connection.execute("SELECT coalesce(max(version), 0) FROM changes")
    return int(version)


async def all_records(connection: SqliteConnection) -> list[RecordRow]:
    """Returns the records of all kinds."""
    return [RecordRow(*row) for row in await connection.execute("SELECT * FROM records")]


async def list_records(connection: SqliteConnection, kind: str) -> tuple[list[RecordRow], int]:
    """Returns the records and the newest version. One statement reads both from the same snapshot."""
    rows = await connection.execute(
        "SELECT newest, records.* FROM (SELECT coalesce(max(version), 0) AS newest FROM changes)"
        " LEFT JOIN records ON kind = ? ORDER BY name",
        kind,
    )
    # Without records, the join has one row of nulls.
    return [RecordRow(*row) for _, *row in rows if row[0] is not None], int(rows[0][0])


async def changes_after(connection: SqliteConnection, version: int) -> list[LoggedChange]:
    """Returns the next changes of all kinds, up to `BATCH`."""
    rows = await connection.execute("SELECT * FROM changes WHERE version > ? ORDER BY version LIMIT ?", version, BATCH)
    try:
        changes = [LoggedChange(ChangeType(type), RecordRow(*row)) for type, *row in rows]
    except ValueError as error:
        raise ExpiredError(
            f"a change after version {version} cannot be read: {error}: list the records again"
        ) from error
    if changes and changes[0].row.version > version + 1:
        raise ExpiredError(f"the changes after version {version} are not kept any more: list the records again")
    return changes
