"""Creates the file of a SQLite store, and checks an existing one."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from cornserve.control.store.base import StoreUnavailableError
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS, damaged, translated

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
PRAGMA journal_mode = WAL;
"""


def prepare_store(path: Path) -> None:
    """Creates the store, readable by its owner only, or checks that the existing file is a store.

    Raises `StoreUnavailableError`.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with creation_lock(path):
            if is_missing(path):
                _create(path)
            check_store(path)
    except (OSError, *DATABASE_ERRORS) as error:
        raise translated(path, error) from error


def is_missing(path: Path) -> bool:
    """Raises `StoreUnavailableError` if the path is a link to a missing file, which an empty store must not replace.

    Raises `OSError` if it cannot be found out.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    if path.is_symlink() and not path.exists():
        raise StoreUnavailableError(
            f"cannot access the store {path}: it is a symbolic link to the missing file {path.readlink()}: "
            "restore this file, or remove the link"
        )
    return False


def existing(path: Path) -> str:
    """Returns the URI of a database that is not created. It may be deleted at any time, and an empty file must not take
    its place."""
    return f"{path.absolute().as_uri()}?mode=rw"


def connect_existing(path: Path, **options: Any) -> sqlite3.Connection:
    """Opens a database. Raises SQLite's errors, also if it is missing."""
    database: sqlite3.Connection = sqlite3.connect(existing(path), uri=True, **options)
    return database


def check_store(path: Path) -> None:
    """Checks that an existing file is a store of this version. Raises `StoreUnavailableError`, `DATABASE_ERRORS`."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise damaged(path, "it is a directory" if stat.S_ISDIR(mode) else "it is not a regular file")
    if path.stat().st_size == 0:
        raise damaged(path, "the file is empty")
    with closing(connect_existing(path, timeout=BUSY_SECONDS, isolation_level=None)) as database:
        _check_schema(database, path)


@contextmanager
def creation_lock(path: Path) -> Iterator[None]:
    """Serializes the creation and the repair of a store."""
    lock = os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def create_database(path: Path) -> None:
    """Creates an empty database. Raises SQLite's errors and `OSError`."""
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(SCHEMA)


def _create(path: Path) -> None:
    """Creates the file under another name, so that an empty file is never a store that is being created."""
    if Path(f"{path}-wal").exists():
        raise damaged(path, f"the file is missing, but {path.name}-wal exists")
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    create_database(partial)
    partial.rename(path)


def _check_schema(database: sqlite3.Connection, path: Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    is_intact = _columns(database) == _expected_columns()
    if application != APPLICATION_ID and not is_intact:
        raise StoreUnavailableError(f"{path} is a database of another program: choose another path for the store")
    if version != SCHEMA_VERSION:
        raise StoreUnavailableError(
            f"{path} has schema {version}, and this version of Cornserve needs schema {SCHEMA_VERSION}: "
            f"export its apps with `cornserve export FILE --store {path}`, move it away, and deploy them with "
            "`cornserve import FILE`, or use the version of Cornserve that wrote it"
        )
    if application != APPLICATION_ID or not is_intact:
        raise damaged(path, "its schema is not that of a store")
    database.execute("SELECT max(version) FROM changes").fetchone()


def _columns(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Returns the name, type and position in the primary key of each column of both tables."""
    database.text_factory = bytes  # Damaged text may not be decodable.
    return database.execute(
        "SELECT tables.name, columns.name, columns.type, columns.pk"
        " FROM (SELECT 'records' AS name UNION SELECT 'changes') AS tables, pragma_table_info(tables.name) AS columns"
    ).fetchall()


@cache
def _expected_columns() -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(SCHEMA)
        return _columns(database)
