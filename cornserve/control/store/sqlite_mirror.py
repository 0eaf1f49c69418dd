"""The rows of a store in memory, from which a running instance writes a lost store again."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from cornserve.control.store.base import APPS, ROUTES, ChangeType, UnreadableRecordError
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS, translated
from cornserve.control.store.sqlite_repair import find_damage, set_aside, write_rows
from cornserve.control.store.sqlite_rows import LoggedChange, RecordRow
from cornserve.control.store.sqlite_schema import connect_existing, create_database, creation_lock, is_missing

log = logging.getLogger(__name__)

VERSION_GAP = 1000
"""The versions that a new file leaves out: other processes may have read newer changes of the lost file than this."""

_KINDS = {APPS.name: APPS, ROUTES.name: ROUTES}


class StoreMirror:
    """Keeps the newest readable row of each record."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, str], RecordRow] = {}
        self._newest = 0

    def load(self, rows: Iterable[RecordRow], newest: int) -> None:
        """Takes over the rows of the file. A damaged row does not replace the readable one that is known."""
        found = {(row.kind, row.name): row for row in rows}
        known = {key: self._rows[key] for key in found.keys() & self._rows.keys()}
        self._rows = known | {key: row for key, row in found.items() if _is_readable(row)}
        self._newest = newest

    def apply(self, change: LoggedChange) -> None:
        row = change.row
        if row.version <= self._newest:
            return
        self._newest = row.version
        if change.type is ChangeType.DELETED:
            self._rows.pop((row.kind, row.name), None)
        else:
            self._rows[row.kind, row.name] = row

    def find_loss(self) -> str:
        """Returns why the file has lost records that are known here, or an empty text.

        Raises `StoreUnavailableError` if the file cannot be accessed.
        """
        newest = self._newest
        if not newest:
            return ""
        try:
            if is_missing(self._path):
                return "its file is missing"
            if damage := find_damage(self._path):
                return damage
            with closing(connect_existing(self._path)) as database:
                found = _newest_version(database)
        except (OSError, *DATABASE_ERRORS) as error:
            raise translated(self._path, error) from error
        return "its file was replaced by an older or an empty one" if found < newest else ""

    def restore(self) -> None:
        """Writes what another file at the path has lost: the whole file, or the rows that a repair has left out.

        Raises `StoreUnavailableError`, for example if the disk is full.
        """
        try:
            with creation_lock(self._path):
                if loss := self.find_loss():
                    self._write_file(loss)
                elif self._newest:
                    self._add_missing_rows()
        except (OSError, *DATABASE_ERRORS) as error:
            raise translated(self._path, error) from error

    def _write_file(self, loss: str) -> None:
        fresh = self._path.with_name(f"{self._path.name}.restored")
        fresh.unlink(missing_ok=True)
        create_database(fresh)
        write_rows(fresh, list(self._rows.values()), self._newest + VERSION_GAP)
        aside = set_aside(self._path, "lost")
        aside.touch(mode=0o600)  # `cornserve doctor` reports the loss, also if nothing was left.
        fresh.rename(self._path)
        log.error(
            "the store %s was lost: %s: it is written again from memory; its remaining data are kept in %s",
            self._path,
            loss,
            aside,
        )

    def _add_missing_rows(self) -> None:
        with closing(connect_existing(self._path)) as database:
            found = set(database.execute("SELECT kind, name FROM records"))
            query = "SELECT kind, name, max(version) FROM changes WHERE type = ? GROUP BY kind, name"
            deleted = {(kind, name): version for kind, name, version in database.execute(query, (ChangeType.DELETED,))}
            newest = _newest_version(database)
        missing = [
            row
            for key, row in list(self._rows.items())
            if key not in found and deleted.get(key, 0) < row.version  # It may be deployed again after a deletion.
        ]
        if missing:
            write_rows(self._path, missing, newest)
            names = ", ".join(f"{row.kind} {row.name!r}" for row in missing)
            log.error("the store %s has lost records, which are written again from memory: %s", self._path, names)


def _newest_version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("SELECT coalesce(max(version), 0) FROM changes").fetchone()
    return int(version)


def _is_readable(row: RecordRow) -> bool:
    try:
        row.to_record(_KINDS[row.kind])  # type: ignore[arg-type]
    except (KeyError, UnreadableRecordError):
        return False
    return True
