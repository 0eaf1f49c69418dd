"""A store whose file another program deletes or overwrites while the controller and a gateway use it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from cornserve.cli.home_checks import store_check
from cornserve.control.local_instance.apps_file import read_apps_file, write_apps_file
from cornserve.control.local_instance.repair import lost_apps, repair
from cornserve.control.store import sqlite
from cornserve.control.store.base import APPS, ROUTES, StoreUnavailableError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_mirror import StoreMirror
from cornserve.control.store.sqlite_schema import create_database, prepare_store
from cornserve.home import Home
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller
from tests.unit.control.test_controller import echo
from tests.waiting import until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
async def store(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    """The store of a controller."""
    monkeypatch.setattr(sqlite, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr("cornserve.control.store.record_cache.RETRY_SECONDS", 0.02)
    prepare_store(home.store)
    store = SqliteStore(home.store, mirror=StoreMirror(home.store))
    checks = asyncio.create_task(store.watch_file())
    yield store
    checks.cancel()
    await asyncio.gather(checks, return_exceptions=True)
    await store.close()


def delete(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def delete_the_database_only(path: Path) -> None:
    path.unlink()


def replace_by_an_empty_store(path: Path) -> None:
    delete(path)
    create_database(path)


def overwrite_by_an_empty_store(path: Path) -> None:
    empty = path.with_name("empty.db")
    create_database(empty)
    shutil.copyfile(empty, path)


def overwrite_by_other_data(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def truncate(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [
        delete,
        delete_the_database_only,
        replace_by_an_empty_store,
        overwrite_by_an_empty_store,
        overwrite_by_other_data,
        truncate,
    ],
)
async def test_a_running_controller_writes_a_lost_store_again(
    client: StoreClient, home: Home, damage: Callable[[Path], None]
) -> None:
    launcher, gateway = FakeLauncher(), SqliteStore(home.store)
    async with running_controller(client, launcher):
        for name in ("a", "b"):
            await client.deploy(name, echo(name))
            await client.wait_until_served(name)
        before = (await gateway.list(APPS)).records
        uids = {record.name: (record.uid, record.generation, record.spec) for record in before}

        damage(home.store)

        async def is_written_again() -> bool:
            fresh = SqliteStore(home.store)
            try:
                records, routes = (await fresh.list(APPS)).records, (await fresh.list(ROUTES)).records
            except StoreUnavailableError:
                return False
            finally:
                await fresh.close()
            found = {record.name: (record.uid, record.generation, record.spec) for record in records}
            return found == uids and len(routes) == 2

        await until(is_written_again)
        assert "written again after a loss" in (await asyncio.to_thread(store_check, home)).found
        await client.redeploy("a", echo("a", replicas=2))
        await client.wait_until_served("a", generation=2)
        assert {record.name for record in (await gateway.list(APPS)).records} == {"a", "b"}
    assert all(difference > 0 for _, difference in launcher.changes)
    await gateway.close()


async def test_an_unreadable_repair_of_a_running_instance_loses_no_app(
    client: StoreClient, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECK_SECONDS", 3600)
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await client.deploy("a", echo("a"))
        await client.wait_until_served("a")
        delete(home.store)
        home.store.write_bytes(os.urandom(8192))
        await asyncio.to_thread(list, repair(home))
        await client.redeploy("a", echo("a", replicas=2))
        await client.wait_until_served("a", generation=2)


@pytest.mark.parametrize("is_deployed_again", [True, False])
async def test_an_app_that_a_repair_has_lost_returns_unless_it_was_deleted(home: Home, is_deployed_again: bool) -> None:
    prepare_store(home.store)
    mirror = StoreMirror(home.store)
    store, gateway = SqliteStore(home.store, mirror=mirror), SqliteStore(home.store)
    await gateway.create(APPS, "a", echo("a"))
    if is_deployed_again:
        await gateway.delete(APPS, "a")
        await gateway.create(APPS, "a", echo("a"))
    await store.list(APPS)
    if is_deployed_again:
        with closing(sqlite3.connect(home.store)) as database:
            database.execute("DELETE FROM records")
            database.commit()
    else:
        await gateway.delete(APPS, "a")

    await asyncio.to_thread(mirror.restore)

    assert [each.name for each in (await gateway.list(APPS)).records] == ["a"] * is_deployed_again
    await store.close()
    await gateway.close()


async def test_a_gateway_refuses_a_store_that_has_lost_its_records(home: Home) -> None:
    prepare_store(home.store)
    gateway = SqliteStore(home.store)
    await gateway.create(APPS, "a", echo("a"))
    await gateway.list(APPS)
    replace_by_an_empty_store(home.store)
    with pytest.raises(StoreUnavailableError, match="was replaced by an older or an empty one"):
        await gateway.list(APPS)
    await gateway.close()


async def test_the_apps_file_has_the_specs_of_the_apps_and_names_lost_ones(store: SqliteStore, home: Home) -> None:
    writing = asyncio.create_task(write_apps_file(store, home.apps_file))
    await store.create(APPS, "a", echo("a"))
    await until(lambda: home.apps_file.exists() and "def invoke" in home.apps_file.read_text())
    assert await asyncio.to_thread(lost_apps, home) == []
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await store.close()
    delete(home.store)
    assert await asyncio.to_thread(lost_apps, home) == ["a"]

    empty = await SqliteStore.open(home.store)
    writing = asyncio.create_task(write_apps_file(empty, home.apps_file))
    await until(lambda: list(home.path.glob("apps.json.lost-*")) != [] and home.apps_file.exists())
    [lost] = home.path.glob("apps.json.lost-*")
    assert list(read_apps_file(lost).apps) == ["a"]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await empty.close()
