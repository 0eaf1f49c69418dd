"""Finds and repairs damaged files of a home, for `cornserve doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppSpec
from cornserve.control.local_instance.apps_file import AppsFileError, read_apps_file
from cornserve.control.local_instance.leftovers import lock_holders
from cornserve.control.store.base import APPS, Listing
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_repair import find_damage, repair_store
from cornserve.home import Home
from cornserve.instance import Instance


def store_problems(home: Home) -> list[str]:
    """Returns what is damaged in the store. Raises `StoreUnavailableError` if it cannot be accessed."""
    if damage := find_damage(home.store):
        return [damage]
    return [record.reason for record in _list(home).unreadable] if home.store.exists() else []


def lost_apps(home: Home) -> list[str]:
    """Returns the names of the deployed apps, if the store has lost all of them. Raises `StoreUnavailableError`."""
    listing = _list(home) if home.store.exists() else None
    if listing is not None and (listing.records or listing.unreadable):
        return []
    try:
        return sorted(read_apps_file(home.apps_file).apps)
    except AppsFileError:
        return []


def has_damaged_instance_file(home: Home) -> bool:
    """Returns whether the instance file exists and is damaged. A running supervisor writes it again within a second."""
    return home.instance.exists() and Instance.read(home) is None


def repair(home: Home) -> Iterator[str]:
    """Repairs damaged files and yields what was done. Instances may run meanwhile.

    Raises `StoreUnavailableError` and `OSError`, for example if the disk is full.
    """
    if store_problems(home):
        report = repair_store(home.store)
        yield f"the damaged store is kept in {report.set_aside}"
        for names, outcome in (
            (report.kept, "kept unchanged"),
            (report.restored, "restored from earlier versions of their records"),
            (report.lost, "lost: deploy these apps again"),
        ):
            if names:
                yield f"{outcome}: {', '.join(names)}"
        if not (report.kept or report.restored or report.lost):
            yield "no app was readable: deploy the apps again"
        elif not report.is_complete:
            yield "a part of the store was not readable: apps that are not named above are lost: deploy them again"
    if has_damaged_instance_file(home) and not lock_holders(home):
        aside = home.instance.with_name(f"{home.instance.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        home.instance.rename(aside)
        yield f"the damaged instance file is kept in {aside}"


def _list(home: Home) -> Listing[AppSpec, AppStatus]:
    async def read() -> Listing[AppSpec, AppStatus]:
        store = await SqliteStore.open(home.store)
        try:
            return await store.list(APPS)
        finally:
            await store.close()

    return asyncio.run(read())
