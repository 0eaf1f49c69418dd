"""Repairs a damaged store: restores what is readable, and sets the damaged files aside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cornserve.control.store.base import ChangeType, StoreDamagedError
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS, translated
from cornserve.control.store.sqlite_rows import RecordRow
from cornserve.control.store.sqlite_salvage import Salvage, salvage
from cornserve.control.store.sqlite_schema import (
    check_store,
    connect_existing,
    create_database,
    creation_lock,
    is_missing,
)

_FILES = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class RepairReport:
    set_aside: Path
    """The damaged file."""
    kept: list[str]
    """The names of the records that were read completely."""
    restored: list[str]
    """The names of the records whose spec or status comes from an earlier version of the record."""
    lost: list[str]
    """The names of the records that could not be restored."""
    is_complete: bool
    """Whether these are all records. Otherwise, a part of the store was not readable."""


def find_damage(store: Path) -> str:
    """Returns what is damaged, or an empty text without damage or without a store. Records are not checked.

    Raises `StoreUnavailableError` if the store cannot be accessed, for example because of its permissions.
    """
    try:
        if is_missing(store):
            return f"{store.name} is missing, but {store.name}-wal exists" if Path(f"{store}-wal").exists() else ""
        check_store(store)
        with closing(connect_existing(store, isolation_level=None)) as database:
            problem: str = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    except StoreDamagedError as error:
        return str(error)
    except (OSError, *DATABASE_ERRORS) as error:
        unavailable = translated(store, error)
        if isinstance(unavailable, StoreDamagedError):
            return str(unavailable)
        raise unavailable from error
    return "" if problem == "ok" else problem


def repair_store(store: Path) -> RepairReport:
    """Replaces the store by one with the records that are readable. Running processes of the instance follow.

    Raises `StoreUnavailableError`, for example if the disk is full.
    """
    try:
        with creation_lock(store):
            salvaged = salvage(store)
            repaired = store.with_name(f"{store.name}.repaired")
            repaired.unlink(missing_ok=True)
            create_database(repaired)
            write_rows(repaired, salvaged.records, salvaged.newest)
            return _replace(store, repaired, salvaged)
    except (OSError, *DATABASE_ERRORS) as error:
        raise translated(store, error) from error


def write_rows(database: Path, rows: Iterable[RecordRow], newest: int) -> None:
    """Adds rows to a store, with the versions after `newest`. Raises SQLite's errors."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for version, row in enumerate(rows, start=newest + 1):
            values = row._replace(version=version)
            connection.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (ChangeType.PUT, *values))
        connection.execute("COMMIT")


def set_aside(file: Path, reason: str) -> Path:
    """Renames a file, and those next to it that SQLite uses, if they exist. Returns its new path. Raises `OSError`."""
    aside = file.with_name(f"{file.name}.{reason}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    for suffix in _FILES:
        with suppress(FileNotFoundError):
            Path(f"{file}{suffix}").rename(f"{aside}{suffix}")
    return aside


def _replace(store: Path, repaired: Path, salvaged: Salvage) -> RepairReport:
    aside = set_aside(store, "damaged")
    repaired.rename(store)
    kept = [row.name for row in salvaged.records if row.name not in salvaged.restored]
    return RepairReport(aside, kept, salvaged.restored, salvaged.lost, salvaged.is_complete)
