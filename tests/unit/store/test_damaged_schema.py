"""Damage of the first page, which contains the schema."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cornserve.control.store.base import APPS, StoreDamagedError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_repair import find_damage, repair_store
from tests.unit.store.conformance import ONE

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with the apps "a" and "b"."""

    async def create() -> None:
        store = await SqliteStore.open(tmp_path / "state.db")
        for name in "ab":
            await store.create(APPS, name, ONE)
        await store.close()

    asyncio.run(create())
    return tmp_path / "state.db"


async def names(path: Path) -> list[str]:
    store = await SqliteStore.open(path)
    try:
        return [record.name for record in (await store.list(APPS)).records]
    finally:
        await store.close()


def is_readable(path: Path) -> bool:
    try:
        return asyncio.run(names(path)) == ["a", "b"]
    except StoreDamagedError:
        return False


@pytest.mark.parametrize("bits", [0x80, 0xFF])
def test_a_damaged_byte_of_the_schema_loses_nothing(path: Path, bits: int) -> None:
    intact = path.read_bytes()
    comma = intact.index(b", uid TEXT")  # Without it, a table has another number of columns.
    for offset in [comma, *range(intact.rindex(b"CREATE TABLE", 0, PAGE), PAGE, 16)]:
        path.write_bytes(intact[:offset] + bytes([intact[offset] ^ bits]) + intact[offset + 1 :])
        assert is_readable(path) or find_damage(path)
        report = repair_store(path)
        assert (sorted([*report.kept, *report.restored]), report.lost) == (["a", "b"], [])
        assert is_readable(path)


def test_another_application_id_is_damage_if_the_schema_is_that_of_a_store(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA application_id = 1")
    assert not is_readable(path)
    assert find_damage(path)
    assert repair_store(path).kept == ["a", "b"]
    assert is_readable(path)
