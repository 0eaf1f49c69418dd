"""Reads what is readable from a damaged database."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from cornserve.control.store.base import APPS, ChangeType
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS
from cornserve.control.store.sqlite_rows import LoggedChange, RecordRow
from cornserve.control.store.sqlite_schema import create_database

_RECORDS = "SELECT rowid, * FROM records"
_CHANGES = "SELECT rowid, * FROM changes"
_INDEXED_NAMES = f"SELECT rowid, name FROM records INDEXED BY sqlite_autoindex_records_1 WHERE kind = '{APPS.name}'"
"""Reads only the pages of the index: a record may be indexed whose own page is damaged."""

_HEADER_FILE_SIZE = slice(28, 32)
"""The bytes of the database's header with its number of pages."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """The records that can be restored, and the names of the others."""

    records: list[RecordRow] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    """The names of the records in `records` whose content comes from an earlier version of the record."""
    lost: list[str] = field(default_factory=list)
    newest: int = 0
    """The newest version of the store."""
    is_complete: bool = False
    """Whether all pages with records were read. Otherwise, further records may be lost, whose names are unknown."""

    @property
    def names(self) -> int:
        """The number of records that were found, readable or not."""
        return len(self.records) + len(self.lost)


def salvage(store: Path) -> Salvage:
    """Reads a copy of the store, which stays unchanged. Raises `OSError`."""
    with tempfile.TemporaryDirectory(prefix="cornserve-") as directory:
        copy = Path(directory) / store.name
        attempts = [_read(_copied(store, copy)), _read(_with_new_first_page(_copied(store, copy)))]
    return max(attempts, key=lambda attempt: (attempt.names, len(attempt.records), attempt.newest, attempt.is_complete))


def _copied(store: Path, copy: Path) -> Path:
    for suffix in ("", "-wal"):
        if Path(f"{store}{suffix}").is_file():
            shutil.copyfile(f"{store}{suffix}", f"{copy}{suffix}")
    Path(f"{copy}-shm").unlink(missing_ok=True)
    return copy


def _with_new_first_page(copy: Path) -> Path:
    """Replaces the first page, which contains only the schema and is the same in every store.

    Without other pages, the result is an empty store, whose records may be in its write-ahead log.
    """
    content = bytearray(copy.read_bytes()) if copy.exists() else bytearray()
    fresh = copy.with_name("fresh")
    create_database(fresh)
    page = fresh.read_bytes()[: _page_size(fresh)]
    if len(content) > len(page):
        content[: len(page)] = page
        content[_HEADER_FILE_SIZE] = (len(content) // len(page)).to_bytes(4)
        copy.write_bytes(content)
    else:
        shutil.copyfile(fresh, copy)
    return copy


def _page_size(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        size: int = connection.execute("PRAGMA page_size").fetchone()[0]
        return size


def _read(database: Path) -> Salvage:
    if not database.exists():
        return Salvage()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.text_factory = _decode
        records = [RecordRow(*row) for row in _rows(connection, _RECORDS, len(RecordRow._fields))]
        indexed = {str(name) for (name,) in _rows(connection, _INDEXED_NAMES, 1)}
        return _restore(records, list(_changes(connection)), indexed, is_complete=_is_complete(connection))


def _is_complete(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT * FROM records").fetchall()
    except DATABASE_ERRORS:
        return False
    return True


def _rows(connection: sqlite3.Connection, query: str, columns: int) -> Iterator[tuple[Any, ...]]:
    """Yields the rows before the first damaged page, and those after the last one.

    A damaged schema may give the rows another number of columns, of which none is reliable.
    """
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(*DATABASE_ERRORS):
            for rowid, *row in connection.execute(f"{query} ORDER BY rowid {order}"):
                if rowid not in seen and len(row) == columns:
                    seen.add(rowid)
                    yield tuple(row)


def _restore(records: list[RecordRow], changes: list[LoggedChange], indexed: set[str], *, is_complete: bool) -> Salvage:
    """Returns each record with its newest readable spec and status, from the log of changes if necessary.

    Args:
        indexed: the names of records that exist, if their index is readable.
    """
    versions = (row.version for row in (*records, *(change.row for change in changes)))
    salvaged = Salvage(newest=max(filter(_is_number, versions), default=0), is_complete=is_complete)
    stored = {row.name: row for row in records if row.kind == APPS.name}
    history: dict[str, list[LoggedChange]] = {}
    for change in sorted(changes, key=lambda change: str(change.row.version).zfill(20), reverse=True):
        if change.row.kind == APPS.name:
            history.setdefault(change.row.name, []).append(change)
    for name in sorted({*stored, *history, *indexed}, key=str):
        earlier = history.get(name, [])
        if name in stored or (earlier and earlier[0].type is ChangeType.PUT):
            _restore_record(name, stored.get(name), [change.row for change in earlier], salvaged)
        elif not earlier:
            salvaged.lost.append(name)
    return salvaged


def _restore_record(name: str, stored: RecordRow | None, earlier: list[RecordRow], salvaged: Salvage) -> None:
    """Adds a record to `salvaged`. `earlier` are the versions of all records with this name, newest first."""
    base = stored or earlier[0]
    candidates = [base, *(row for row in earlier if row.uid == base.uid)]
    spec = next((row.spec for row in candidates if _is_valid(APPS.spec, row.spec)), None)
    if spec is None or not _is_text(name):
        salvaged.lost.append(str(name))
        return
    status = next((row.status for row in candidates if _is_valid(APPS.status, row.status)), None)
    numbers = [row for row in candidates if _is_number(row.generation) and _is_number(row.spec_version)]
    row = RecordRow(
        kind=APPS.name,
        name=name,
        uid=base.uid if _is_text(base.uid) else str(uuid4()),
        generation=numbers[0].generation if numbers else 1,
        spec_version=numbers[0].spec_version if numbers else 0,
        version=salvaged.newest,
        spec=spec,
        status=status or APPS.status().model_dump_json(),
    )
    salvaged.records.append(row)
    if stored is None or (row.spec, row.status) != (stored.spec, stored.status):
        salvaged.restored.append(name)


def _is_valid(model: type[BaseModel], text: str) -> bool:
    try:
        model.model_validate_json(text)
    except (ValueError, TypeError):
        return False
    return True


def _is_number(column: object) -> bool:
    return isinstance(column, int)


def _is_text(column: object) -> bool:
    return isinstance(column, str)


def _changes(connection: sqlite3.Connection) -> Iterator[LoggedChange]:
    for type, *row in _rows(connection, _CHANGES, len(RecordRow._fields) + 1):
        with suppress(ValueError):
            yield LoggedChange(ChangeType(str(type)), RecordRow(*row))


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")
