"""Damaged records and files, and their repair while other processes use the store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from cornserve.control.store.base import (
    APPS,
    ExpiredError,
    NotFoundError,
    StoreDamagedError,
    StoreUnavailableError,
    UnreadableRecordError,
)
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_repair import find_damage, repair_store
from tests.unit.store.conformance import ONE, TWO, open_watch, read_changes, status_with

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store with the apps "a" and "b"."""
    store = await SqliteStore.open(path)
    for name in "ab":
        record = await store.create(APPS, name, ONE)
        await store.update_status(APPS, name, status_with(f"status of {name}"), record.version)
    yield store
    await store.close()


def overwrite(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, values)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> bytes:
    """Changes the content of a file. Returns the new content."""
    content = change(path.read_bytes())
    path.write_bytes(content)
    return content


def move(source: Path, target: Path) -> None:
    source.rename(target)


async def names(path: Path) -> list[str]:
    store = await SqliteStore.open(path)
    try:
        return [record.name for record in (await store.list(APPS)).records]
    finally:
        await store.close()


@pytest.mark.parametrize("column", ["spec", "status"])
@pytest.mark.parametrize("text", ["{", "[]", '{"no": 1}', "", b"\xff\xfe", None])
async def test_a_damaged_record_does_not_hide_the_others(
    store: SqliteStore, path: Path, column: str, text: object
) -> None:
    if (column, text) == ("status", '{"no": 1}'):
        return  # Unknown fields of a status are ignored.
    overwrite(path, f"UPDATE records SET {column} = ? WHERE name = 'a'", text)

    listing = await store.list(APPS)

    assert [record.name for record in listing.records] == ["b"]
    assert [record.name for record in listing.unreadable] == ["a"]
    assert f"run `cornserve doctor --repair --home {path.parent}`" in listing.unreadable[0].reason
    with pytest.raises(UnreadableRecordError, match="App 'a' is damaged"):
        await store.get(APPS, "a")
    with pytest.raises(UnreadableRecordError):
        await store.update_spec(APPS, "a", TWO, listing.version)


async def test_a_damaged_record_can_be_deleted(store: SqliteStore, path: Path) -> None:
    overwrite(path, "UPDATE records SET spec = '{' WHERE name = 'a'")
    version = (await store.list(APPS)).version
    async with open_watch(store, version) as watch:
        await store.delete(APPS, "a")
        with pytest.raises(ExpiredError, match="cannot be read"):
            await read_changes(watch, 1)
    assert not (await store.list(APPS)).unreadable


@pytest.mark.parametrize("column", ["type", "spec", "kind"])
async def test_a_watch_over_a_damaged_change_lists_again(store: SqliteStore, path: Path, column: str) -> None:
    overwrite(path, f"UPDATE changes SET {column} = x'ff'")
    async with open_watch(store, 0) as watch:
        if column == "kind":  # It is not the change of an app any more.
            await store.create(APPS, "c", ONE)
            assert [change.record.name for change in await read_changes(watch, 1)] == ["c"]
        else:
            with pytest.raises(ExpiredError):
                await read_changes(watch, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"garbage" * 1000,
        lambda content: b"",
        lambda content: content[:1000],
        lambda content: content[:PAGE],
        lambda content: b"\xff" * PAGE + content[PAGE:],
        lambda content: content[:PAGE] + b"\xff" * (len(content) - PAGE),
    ],
    ids=["garbage", "empty", "truncated", "only the first page", "first page", "other pages"],
)
async def test_a_damaged_file_is_reported_and_repaired(
    store: SqliteStore, path: Path, damage: Callable[[bytes], bytes]
) -> None:
    await store.close()
    damaged = rewrite(path, damage)
    assert find_damage(path)

    report = repair_store(path)

    assert rewrite(report.set_aside, bytes) == damaged
    assert find_damage(path) == ""
    assert await names(path) == [*report.kept, *report.restored]


@pytest.mark.parametrize("content", [b"garbage" * 1000, b""])
def test_a_damaged_file_is_an_error_with_the_command_that_repairs_it(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(
        StoreDamagedError, match=f"is damaged: .*: run `cornserve doctor --repair --home {path.parent}`"
    ):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == content


async def test_a_damaged_first_page_loses_nothing(store: SqliteStore, path: Path) -> None:
    before = (await store.list(APPS)).records
    await store.close()
    rewrite(path, lambda content: b"\xff" * PAGE + content[PAGE:])

    report = repair_store(path)

    repaired = await SqliteStore.open(path)
    after = (await repaired.list(APPS)).records
    await repaired.close()
    assert (report.kept, report.restored, report.lost) == (["a", "b"], [], [])
    assert [(record.name, record.uid, record.spec, record.status) for record in after] == [
        (record.name, record.uid, record.spec, record.status) for record in before
    ]


async def test_a_damaged_record_is_restored_from_the_log_of_changes(store: SqliteStore, path: Path) -> None:
    before = await store.get(APPS, "a")
    overwrite(path, "UPDATE records SET spec = '{', status = '{', uid = uid WHERE name = 'a'")
    report = repair_store(path)
    after = await store.get(APPS, "a")
    assert (report.kept, report.restored, report.lost) == (["b"], ["a"], [])
    assert (after.uid, after.generation, after.spec, after.status) == (
        before.uid, before.generation, before.spec, before.status,
    )  # fmt: skip


async def test_a_record_without_a_readable_spec_is_lost_and_the_others_are_kept(store: SqliteStore, path: Path) -> None:
    overwrite(path, "UPDATE records SET spec = '{' WHERE name = 'a'")
    overwrite(path, "UPDATE changes SET spec = '{' WHERE name = 'a'")
    report = repair_store(path)
    assert (report.kept, report.restored, report.lost) == (["b"], [], ["a"])
    with pytest.raises(NotFoundError):
        await store.get(APPS, "a")


async def test_a_deleted_record_is_not_restored(store: SqliteStore, path: Path) -> None:
    await store.delete(APPS, "a")
    overwrite(path, "UPDATE records SET status = '{' WHERE name = 'b'")
    assert repair_store(path).restored == ["b"]
    assert [record.name for record in (await store.list(APPS)).records] == ["b"]


async def test_an_open_store_follows_its_repair(store: SqliteStore, path: Path) -> None:
    version = (await store.list(APPS)).version
    async with open_watch(store, version) as watch:
        pending = asyncio.create_task(read_changes(watch, 1))
        await asyncio.sleep(0)
        repair_store(path)
        with pytest.raises(StoreUnavailableError, match="has been replaced or damaged"):
            await pending
    listing = await store.list(APPS)
    assert [record.name for record in listing.records] == ["a", "b"]
    assert listing.version > version
    created = await store.create(APPS, "c", ONE)
    assert await names(path) == ["a", "b", "c"]
    async with open_watch(store, listing.version) as watch:
        assert [change.record for change in await read_changes(watch, 1)] == [created]


async def test_an_open_store_reports_that_its_file_is_missing_and_recovers(store: SqliteStore, path: Path) -> None:
    move(path, path.with_name("moved"))
    with pytest.raises(StoreUnavailableError, match=r"state\.db"):
        await store.list(APPS)
    move(path.with_name("moved"), path)
    assert [record.name for record in (await store.list(APPS)).records] == ["a", "b"]


def test_a_missing_store_is_not_damaged(path: Path) -> None:
    assert find_damage(path) == ""


def test_a_store_that_cannot_be_accessed_is_not_missing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="File name too long"):
        find_damage(tmp_path / ("a" * 300))


def test_a_log_without_its_store_is_damage(path: Path) -> None:
    path.with_name("state.db-wal").write_bytes(b"log")
    with pytest.raises(StoreDamagedError, match="missing"):
        asyncio.run(names(path))
    assert "missing" in find_damage(path)
    assert Path(f"{repair_store(path).set_aside}-wal").read_bytes() == b"log"
    assert asyncio.run(names(path)) == []
