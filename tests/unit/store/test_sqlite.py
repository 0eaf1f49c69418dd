"""The SQLite store: what every store does, and what its file must stand."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
from pydantic import BaseModel

from cornserve.control.store import sqlite, sqlite_connection
from cornserve.control.store.base import APPS, ExpiredError, NotFoundError, RecordKind, StoreUnavailableError
from cornserve.control.store.sqlite import SqliteStore
from tests.unit.store.conformance import ONE, PATIENCE_SECONDS, StoreConformance, changes, said, take
from tests.waiting import until

Connect = Callable[..., AbstractAsyncContextManager[SqliteStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def connect(path: Path) -> Connect:
    @asynccontextmanager
    async def connect(*, keep: int = 1000) -> AsyncIterator[SqliteStore]:
        store = await SqliteStore.open(path, keep=keep)
        try:
            yield store
        finally:
            await store.close()

    return connect


class TestSqliteStore(StoreConformance):
    """All that every store must do."""


# Other processes


@asynccontextmanager
async def doomed_writer(path: Path, number: signal.Signals) -> AsyncIterator[None]:
    """Another process, which has received the signal in mid-write."""
    process = await asyncio.to_thread(_start, path, number)
    try:
        # Returns when it has stopped or ended, and leaves it to be waited for.
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def _start(path: Path, number: signal.Signals) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("doomed_writer.py")
    return subprocess.Popen([sys.executable, str(script), str(path), str(int(number))])


async def test_a_watch_sees_the_writes_of_another_process(connect: Connect, path: Path) -> None:
    async with connect() as store, changes(store, 0) as watch:
        coming = asyncio.create_task(take(watch, 2))
        async with doomed_writer(path, signal.SIGCONT):
            assert [change.record.name for change in await coming] == ["whole", "half"]


async def test_a_watch_that_has_seen_nothing_for_long_sees_the_writes_of_others(
    connect: Connect, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 0.001)
    seen = Counter[object]()

    def state(of: Path) -> sqlite_connection.LogState | None:
        seen[log := sqlite_connection.log_state(of)] += 1
        return log

    monkeypatch.setattr(sqlite, "log_state", state)
    async with connect() as store, connect() as other, changes(store, 0) as watch:
        for name in "abc":
            coming = asyncio.create_task(take(watch, 1))
            seen.clear()
            await until(lambda: max(seen.values(), default=0) > 10)
            await other.create(APPS, name, ONE)
            assert [change.record.name for change in await coming] == [name]


async def test_a_write_is_seen_although_the_log_looks_as_before(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(sqlite, "log_state", lambda path: (0, 0))
    async with connect() as store, connect() as other, changes(store, 0) as watch:
        for name in "abc":
            coming = asyncio.create_task(take(watch, 1))
            await asyncio.sleep(0)
            await other.create(APPS, name, ONE)
            assert [change.record.name for change in await coming] == [name]


async def test_a_watch_of_a_closed_store_says_so_while_others_have_it_open(connect: Connect) -> None:
    async with connect(), AsyncExitStack() as open:
        store = await open.enter_async_context(connect())
        async with changes(store, 0) as watch:
            coming = asyncio.create_task(take(watch, 1))
            await asyncio.sleep(0)
            await open.aclose()
            with pytest.raises(StoreUnavailableError):
                await coming


async def test_a_writer_that_is_killed_in_mid_write_leaves_nothing_of_it_and_no_lock(
    connect: Connect, path: Path
) -> None:
    async with doomed_writer(path, signal.SIGKILL), connect() as store, asyncio.timeout(PATIENCE_SECONDS):
        assert [record.name for record in (await store.list(APPS)).records] == ["whole"]
        await store.create(APPS, "after", ONE)
        async with changes(store, 0) as watch:
            assert [change.record.name for change in await take(watch, 2)] == ["whole", "after"]


async def test_readers_do_not_wait_for_a_writer_that_hangs(connect: Connect, path: Path) -> None:
    async with doomed_writer(path, signal.SIGSTOP), connect() as store, asyncio.timeout(PATIENCE_SECONDS):
        async with changes(store, 0) as watch:
            assert [change.record.name for change in await take(watch, 1)] == ["whole"]
        with pytest.raises(NotFoundError):
            await store.get(APPS, "half")


async def test_a_write_waits_for_a_writer_that_hangs_but_not_for_ever(
    connect: Connect, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.01)
    async with doomed_writer(path, signal.SIGSTOP), connect() as store:
        with pytest.raises(StoreUnavailableError, match="locked"):
            await store.create(APPS, "a", ONE)


# The log of changes


async def test_a_watch_does_not_wait_to_see_writes_of_its_own_store(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 3600)
    async with connect() as store, changes(store, 0) as watch:
        for name in "abc":
            coming = asyncio.create_task(take(watch, 1))
            await store.create(APPS, name, ONE)
            assert [change.record.name for change in await coming] == [name]


async def test_a_watch_from_a_change_that_is_no_longer_kept_has_expired(connect: Connect) -> None:
    async with connect(keep=3) as store:
        versions = [(await store.create(APPS, name, ONE)).version for name in "abcde"]
        async with changes(store, versions[1]) as watch:
            assert [change.record.name for change in await take(watch, 3)] == ["c", "d", "e"]
        async with changes(store, versions[0]) as watch:
            with pytest.raises(ExpiredError, match="list again"):
                await take(watch, 1)


async def test_a_watch_whose_consumer_is_too_slow_expires_and_skips_nothing(connect: Connect) -> None:
    async with connect(keep=3) as store, changes(store, 0) as watch:
        record = await store.create(APPS, "a", ONE)
        await take(watch, 1)
        for number in range(4):
            record = await store.update_status(APPS, "a", said(str(number)), record.version)
        with pytest.raises(ExpiredError):
            await take(watch, 1)


async def test_a_store_keeps_at_least_the_last_change(path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        await SqliteStore.open(path, keep=0)


async def test_a_watch_that_is_far_behind_catches_up(connect: Connect) -> None:
    async with connect() as store, changes(store, 0) as watch:
        names = [f"app-{number}" for number in range(250)]
        for name in names:
            await store.create(APPS, name, ONE)
        assert [change.record.name for change in await take(watch, 250)] == names


class Note(BaseModel):
    text: str = ""


NOTES = RecordKind("Note", Note, Note)


async def test_kinds_do_not_meet(connect: Connect) -> None:
    async with connect() as store:
        note = await store.create(NOTES, "a", Note(text="hello"))
        app = await store.create(APPS, "a", ONE)
        assert (await store.list(NOTES)).records == [note]
        assert (await store.list(APPS)).records == [app]
        async with changes(store, 0) as watch:
            assert [change.record for change in await take(watch, 1)] == [app]


# The file


async def test_a_store_is_for_the_eyes_of_its_owner_only(connect: Connect, path: Path) -> None:
    async with connect() as store:
        await store.create(APPS, "a", ONE)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(["state.db", "state.db-wal", "state.db-shm", "state.db-lock"], 0o600)


async def test_a_new_store_may_be_opened_by_many_at_once(connect: Connect) -> None:
    async def write(name: str) -> None:
        async with connect() as store:
            await store.create(APPS, name, ONE)

    async with asyncio.TaskGroup() as tasks:
        for name in "abcdefgh":
            tasks.create_task(write(name))
    async with connect() as store:
        assert [record.name for record in (await store.list(APPS)).records] == list("abcdefgh")


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("This is no database. " * 100)
    with pytest.raises(StoreUnavailableError, match=r"state\.db: file is not a database"):
        asyncio.run(SqliteStore.open(path))


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="another program"):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == before


async def test_a_store_of_another_schema_is_refused(connect: Connect, path: Path) -> None:
    async with connect():
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailableError, match="schema 99"):
        await SqliteStore.open(path)


def test_a_place_where_no_file_can_be_is_refused(path: Path) -> None:
    path.parent.touch()
    with pytest.raises(StoreUnavailableError, match=r"state\.db"):
        asyncio.run(SqliteStore.open(path))


async def test_a_closed_store_says_so(connect: Connect) -> None:
    async with connect() as store:
        await store.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.list(APPS)
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.create(APPS, "a", ONE)
