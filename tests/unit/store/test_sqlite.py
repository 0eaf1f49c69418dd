"""The SQLite store: conformance, other processes, and its file."""

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
from errno import EMFILE
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from pydantic import BaseModel

from cornserve.control.store import sqlite, sqlite_connection
from cornserve.control.store.base import APPS, ExpiredError, NotFoundError, RecordKind, StoreUnavailableError
from cornserve.control.store.sqlite import SqliteStore
from cornserve.control.store.sqlite_connection import CommitDetector, SqliteConnection
from tests.unit.store.conformance import ONE, TIMEOUT_SECONDS, StoreConformance, open_watch, read_changes, status_with
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
    pass


# Other processes


@asynccontextmanager
async def doomed_writer(path: Path, number: signal.Signals) -> AsyncIterator[None]:
    """Runs another process that receives the signal during a write."""
    process = await asyncio.to_thread(_start, path, number)
    try:
        # Returns when the process has stopped or exited, without reaping it.
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        yield
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def _start(path: Path, number: signal.Signals) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("doomed_writer.py")
    return subprocess.Popen([sys.executable, str(script), str(path), str(int(number))])


async def test_a_watch_sees_the_writes_of_another_process_without_polling(
    connect: Connect, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 3600)
    async with connect() as store, open_watch(store, 0) as watch:
        pending = asyncio.create_task(read_changes(watch, 2))
        async with doomed_writer(path, signal.SIGCONT):
            assert [change.record.name for change in await pending] == ["whole", "half"]


async def test_a_watch_sees_the_writes_of_other_clients_on_a_system_without_notifications(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(EMFILE, "Too many open files")
    monkeypatch.setattr(sqlite, "FileChanges", Mock(side_effect=error))
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 3600)
    async with connect() as store, connect() as other, open_watch(store, 0) as watch:
        for name in "abc":
            pending = asyncio.create_task(read_changes(watch, 1))
            await asyncio.sleep(0)
            await other.create(APPS, name, ONE)
            assert [change.record.name for change in await pending] == [name]


async def test_a_watch_that_has_been_idle_sees_the_writes_of_other_clients(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 0.001)
    polls, data_version = Counter[str](), CommitDetector.data_version

    def counted(detector: CommitDetector) -> int | None:
        polls["data_version"] += 1
        return data_version(detector)

    monkeypatch.setattr(CommitDetector, "data_version", counted)
    async with connect() as store, connect() as other, open_watch(store, 0) as watch:
        for name in "abc":
            pending = asyncio.create_task(read_changes(watch, 1))
            polls.clear()
            await until(lambda: polls.total() > 10)
            await other.create(APPS, name, ONE)
            assert [change.record.name for change in await pending] == [name]


async def test_an_idle_watch_does_not_read_the_store(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 0.001)
    polls, data_version = 0, CommitDetector.data_version

    def counted(detector: CommitDetector) -> int | None:
        nonlocal polls
        polls += 1
        return data_version(detector)

    monkeypatch.setattr(CommitDetector, "data_version", counted)
    async with connect() as store, open_watch(store, 0) as watch:
        pending = asyncio.create_task(read_changes(watch, 1))
        await until(lambda: polls > 1)  # It has read the store.
        execute = AsyncMock(side_effect=AssertionError("the watch reads the store"))
        with monkeypatch.context() as patched:
            patched.setattr(SqliteConnection, "execute", execute)
            before = polls
            await until(lambda: polls > before + 10)
            assert not pending.done()
        await store.create(APPS, "a", ONE)
        assert [change.record.name for change in await pending] == ["a"]


async def test_a_watch_reads_the_store_while_commits_cannot_be_detected(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "UNNOTIFIED_POLL_SECONDS", 0.001)
    monkeypatch.setattr(CommitDetector, "data_version", lambda detector: None)
    async with connect() as store, connect() as other, open_watch(store, 0) as watch:
        for name in "abc":
            pending = asyncio.create_task(read_changes(watch, 1))
            await asyncio.sleep(0)
            await other.create(APPS, name, ONE)
            assert [change.record.name for change in await pending] == [name]


async def test_a_watch_fails_when_its_store_is_closed_although_another_client_has_it_open(connect: Connect) -> None:
    async with connect(), AsyncExitStack() as open:
        store = await open.enter_async_context(connect())
        async with open_watch(store, 0) as watch:
            pending = asyncio.create_task(read_changes(watch, 1))
            await asyncio.sleep(0)
            await open.aclose()
            with pytest.raises(StoreUnavailableError):
                await pending


async def test_a_writer_killed_during_a_write_leaves_no_partial_write_and_no_lock(connect: Connect, path: Path) -> None:
    async with doomed_writer(path, signal.SIGKILL), connect() as store, asyncio.timeout(TIMEOUT_SECONDS):
        assert [record.name for record in (await store.list(APPS)).records] == ["whole"]
        await store.create(APPS, "after", ONE)
        async with open_watch(store, 0) as watch:
            assert [change.record.name for change in await read_changes(watch, 2)] == ["whole", "after"]


async def test_readers_do_not_wait_for_a_hanging_writer(connect: Connect, path: Path) -> None:
    async with doomed_writer(path, signal.SIGSTOP), connect() as store, asyncio.timeout(TIMEOUT_SECONDS):
        async with open_watch(store, 0) as watch:
            assert [change.record.name for change in await read_changes(watch, 1)] == ["whole"]
        with pytest.raises(NotFoundError):
            await store.get(APPS, "half")


async def test_a_write_waits_for_a_hanging_writer_until_a_timeout(
    connect: Connect, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_SECONDS", 0.01)
    async with doomed_writer(path, signal.SIGSTOP), connect() as store:
        with pytest.raises(StoreUnavailableError, match="locked"):
            await store.create(APPS, "a", ONE)


# The log of changes


async def test_a_watch_yields_writes_of_its_own_store_without_polling(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "POLL_SECONDS", 3600)
    async with connect() as store, open_watch(store, 0) as watch:
        for name in "abc":
            pending = asyncio.create_task(read_changes(watch, 1))
            await store.create(APPS, name, ONE)
            assert [change.record.name for change in await pending] == [name]


async def test_a_watch_from_a_change_that_is_not_kept_expires(connect: Connect) -> None:
    async with connect(keep=3) as store:
        versions = [(await store.create(APPS, name, ONE)).version for name in "abcde"]
        async with open_watch(store, versions[1]) as watch:
            assert [change.record.name for change in await read_changes(watch, 3)] == ["c", "d", "e"]
        async with open_watch(store, versions[0]) as watch:
            with pytest.raises(ExpiredError, match="list the records again"):
                await read_changes(watch, 1)


async def test_a_watch_with_a_slow_consumer_expires_instead_of_skipping_changes(connect: Connect) -> None:
    async with connect(keep=3) as store, open_watch(store, 0) as watch:
        record = await store.create(APPS, "a", ONE)
        await read_changes(watch, 1)
        for number in range(4):
            record = await store.update_status(APPS, "a", status_with(str(number)), record.version)
        with pytest.raises(ExpiredError):
            await read_changes(watch, 1)


async def test_a_store_keeps_at_least_the_last_change(path: Path) -> None:
    with pytest.raises(ValueError, match="at least one"):
        await SqliteStore.open(path, keep=0)


async def test_a_watch_that_is_far_behind_catches_up(connect: Connect) -> None:
    async with connect() as store, open_watch(store, 0) as watch:
        names = [f"app-{number}" for number in range(250)]
        for name in names:
            await store.create(APPS, name, ONE)
        assert [change.record.name for change in await read_changes(watch, 250)] == names


class MemoSpec(BaseModel):
    text: str = ""


MEMOS = RecordKind("Memo", MemoSpec, MemoSpec)


async def test_records_of_different_kinds_are_separate(connect: Connect) -> None:
    async with connect() as store:
        memo = await store.create(MEMOS, "a", MemoSpec(text="hello"))
        app = await store.create(APPS, "a", ONE)
        assert (await store.list(MEMOS)).records == [memo]
        assert (await store.list(APPS)).records == [app]
        async with open_watch(store, 0) as watch:
            assert [change.record for change in await read_changes(watch, 1)] == [app]


# The file


async def test_only_the_owner_can_read_a_store(connect: Connect, path: Path) -> None:
    async with connect() as store:
        await store.create(APPS, "a", ONE)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(["state.db", "state.db-wal", "state.db-shm", "state.db-lock"], 0o600)


async def test_many_clients_may_open_a_new_store_at_once(connect: Connect) -> None:
    async def write(name: str) -> None:
        async with connect() as store:
            await store.create(APPS, name, ONE)

    async with asyncio.TaskGroup() as tasks:
        for name in "abcdefgh":
            tasks.create_task(write(name))
    async with connect() as store:
        assert [record.name for record in (await store.list(APPS)).records] == list("abcdefgh")


def test_a_file_that_is_not_a_database_is_rejected(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("This is not a database. " * 100)
    with pytest.raises(
        StoreUnavailableError,
        match=r"state\.db is damaged: file is not a database: run `cornserve doctor --repair --home",
    ):
        asyncio.run(SqliteStore.open(path))


def test_the_database_of_another_program_is_rejected_and_unchanged(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailableError, match="another program"):
        asyncio.run(SqliteStore.open(path))
    assert path.read_bytes() == before


async def test_a_store_with_another_schema_is_rejected(connect: Connect, path: Path) -> None:
    async with connect():
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailableError, match="schema 99"):
        await SqliteStore.open(path)


def test_an_impossible_path_is_rejected(path: Path) -> None:
    path.parent.touch()
    with pytest.raises(StoreUnavailableError, match=r"state\.db"):
        asyncio.run(SqliteStore.open(path))


async def test_calls_of_a_closed_store_fail(connect: Connect) -> None:
    async with connect() as store:
        await store.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.list(APPS)
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.create(APPS, "a", ONE)
