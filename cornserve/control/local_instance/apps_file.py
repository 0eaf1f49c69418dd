"""The file with the specs of all deployed apps, which survives a lost store and a change of its schema."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppSpec
from cornserve.atomic_files import read_regular_file, write_atomically
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.record_cache import CacheUpdate, RecordCache
from cornserve.control.store.sqlite_errors import DATABASE_ERRORS
from cornserve.control.store.sqlite_repair import set_aside
from cornserve.validation_errors import describe_error

log = logging.getLogger(__name__)


class AppsFileError(Exception):
    """A file with apps cannot be read. The message is for users."""


class ExportedApps(BaseModel):
    """The content of the file. The specs are checked when they are deployed: another version may have written them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    apps: dict[str, dict[str, Any]]
    """The spec of each app, by name."""

    @classmethod
    def of_specs(cls, specs: Mapping[str, AppSpec]) -> ExportedApps:
        return cls(apps={name: spec.model_dump(mode="json", exclude_unset=True) for name, spec in specs.items()})


def read_apps_file(file: Path) -> ExportedApps:
    """Raises `AppsFileError`."""
    try:
        return ExportedApps.model_validate_json(read_regular_file(file))
    except OSError as error:
        raise AppsFileError(f"cannot read {file}: {error.strerror}") from error
    except ValidationError as error:
        reason = describe_error(error.errors()[0])
        raise AppsFileError(f"{file} is not a file of `cornserve export`: {reason}") from error


def read_apps_of_store(store: Path) -> ExportedApps:
    """Reads the specs from a store of any version, which stays unchanged. Raises `AppsFileError`."""
    query = "SELECT name, spec FROM records WHERE kind = ? ORDER BY name"
    try:
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = dict(database.execute(query, (APPS.name,)))
        return ExportedApps(apps={name: json.loads(spec) for name, spec in rows.items()})
    except (*DATABASE_ERRORS, TypeError, ValueError) as error:
        raise AppsFileError(f"cannot read the apps of the store {store}: {error}") from error


async def write_apps_file(store: Store, file: Path) -> None:
    """Writes the file whenever the specs of the apps change. Runs until cancelled.

    The file of a store that has no apps at the start is kept under another name.
    """
    cache: RecordCache[AppSpec, AppStatus] = RecordCache(store, APPS)
    written: dict[str, tuple[str, int]] | None = None

    def write(update: CacheUpdate) -> None:
        nonlocal written
        current = {name: (record.uid, record.generation) for name, record in cache.records.items()}
        if current == written or cache.unknown:
            return
        exported = ExportedApps.of_specs({name: record.spec for name, record in sorted(cache.records.items())})
        try:
            if written is None and not current and (lost := keep_lost_apps(file)):
                log.error("%s", lost)
            write_atomically(file, exported.model_dump_json())
        except OSError as error:
            log.warning("cannot write the apps to %s: %s", file, error)
        else:
            written = current

    await cache.follow(write)


def keep_lost_apps(file: Path) -> str:
    """Renames the file if it has apps, which the store has lost, and returns a message with the way back."""
    try:
        names = sorted(read_apps_file(file).apps)
    except AppsFileError:
        return ""
    if not names:
        return ""
    kept = set_aside(file, "lost")
    return (
        f"the store has no apps, but these were deployed in this home: {', '.join(names)}: "
        f"deploy them again with `cornserve import {kept}`"
    )
