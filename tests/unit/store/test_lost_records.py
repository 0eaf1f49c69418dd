"""Repairs that cannot restore all records."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.control.local_instance.repair import repair
from cornserve.control.store.base import APPS
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_repair import repair_store
from cornserve.control.store.sqlite_schema import create_database
from cornserve.home import Home
from tests.unit.store.conformance import ONE

PAGE = 4096
NAMES = [f"app-{number}" for number in range(20)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with apps that fill a page each."""

    async def create() -> None:
        store = await SqliteStore.open(tmp_path / "state.db", keep=1)
        for name in NAMES:
            await store.create(APPS, name, AppSpec(source=AppSource(inline="m" * (PAGE - 300))))
        await store.close()

    asyncio.run(create())
    return Home(tmp_path)


def test_records_that_are_only_indexed_are_named_as_lost(home: Home) -> None:
    content = home.store.read_bytes()
    for name in ("app-7", "app-8"):
        page = content.index(f"App{name}".encode()) // PAGE * PAGE
        while b"mmmm" not in content[page : page + PAGE]:  # The index.
            page = content.index(f"App{name}".encode(), page + PAGE) // PAGE * PAGE
        content = content[:page] + bytes(PAGE) + content[page + PAGE :]
    home.store.write_bytes(content)

    report = repair_store(home.store)

    assert {"app-7", "app-8"} <= set(report.lost)
    assert sorted([*report.kept, *report.restored, *report.lost]) == sorted(NAMES)
    assert not report.is_complete


def test_a_truncated_store_reports_that_names_are_unknown(home: Home) -> None:
    content = home.store.read_bytes()
    home.store.write_bytes(content[: 12 * PAGE])
    assert any("a part of the store was not readable" in line for line in repair(home))


def test_a_repair_that_reads_everything_is_complete(home: Home) -> None:
    content = home.store.read_bytes()
    home.store.write_bytes(bytes(PAGE) + content[PAGE:])
    report = repair_store(home.store)
    assert (len(report.kept), report.is_complete) == (len(NAMES), True)


async def test_the_records_are_in_the_database_after_each_write(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "state.db")
    for name in NAMES:
        await store.create(APPS, name, AppSpec(model=AppModel(id="m")))
        assert f"App{name}".encode() in await asyncio.to_thread((tmp_path / "state.db").read_bytes)
    await store.close()


def test_the_records_in_a_log_without_its_store_are_restored(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    create_database(store)
    with closing(sqlite3.connect(store)) as database:
        row = ("App", "a", "uid", 1, 1, 1, ONE.model_dump_json(), AppStatus().model_dump_json())
        with database:
            database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        log = Path(f"{store}-wal").read_bytes()
    store.unlink()
    Path(f"{store}-wal").write_bytes(log)
    assert repair_store(store).kept == ["a"]
