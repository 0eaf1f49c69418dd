"""Tests for every implementation of the `Store` interface.

The tests of a store derive a class from `StoreConformance` and define the fixture `connect`. Each call opens another
client of the same store, which is empty when a test starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cornserve.app.record import AppStatus
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.control.store.base import (
    APPS,
    MAX_RECORD_BYTES,
    AlreadyExistsError,
    Change,
    ChangeType,
    ConflictError,
    ExpiredError,
    NotFoundError,
    Record,
    RecordTooLargeError,
    Store,
)
from tests.waiting import until

Connect = Callable[[], AbstractAsyncContextManager[Store]]
AppRecord = Record[AppSpec, AppStatus]
AppChange = Change[AppSpec, AppStatus]

TIMEOUT_SECONDS = 60.0
"""A test fails if an operation takes this long. Normal operations take milliseconds."""

ONE = AppSpec(model=AppModel(id="one"))
TWO = AppSpec(model=AppModel(id="two"))


def status_with(message: str) -> AppStatus:
    return AppStatus(message=message)


@asynccontextmanager
async def open_watch(store: Store, after: int) -> AsyncIterator[AsyncIterator[AppChange]]:
    """Closes the watch at the end of the block."""
    watch = store.watch(APPS, after)
    try:
        yield watch
    finally:
        if isinstance(watch, AsyncGenerator):
            await watch.aclose()


async def read_changes(watch: AsyncIterator[AppChange], count: int) -> list[AppChange]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [await anext(watch) for _ in range(count)]


class StoreConformance:
    @pytest.fixture
    async def store(self, connect: Connect) -> AsyncIterator[Store]:
        async with connect() as store:
            yield store

    @pytest.fixture
    async def other(self, connect: Connect) -> AsyncIterator[Store]:
        """Another client of the same store."""
        async with connect() as store:
            yield store

    # Reading and writing

    async def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        assert (await store.list(APPS)).records == []

    async def test_a_created_record_has_its_spec_and_the_first_status(self, store: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        assert (record.name, record.generation, record.spec, record.status) == ("a", 1, ONE, AppStatus())

    async def test_every_client_reads_the_writes_of_every_other_client(self, store: Store, other: Store) -> None:
        await store.create(APPS, "a", ONE)
        written = await store.update_status(APPS, "a", status_with("hello"), (await store.get(APPS, "a")).version)
        assert await other.get(APPS, "a") == written
        assert (await other.list(APPS)).records == [written]

    async def test_any_text_is_read_back_unchanged(self, store: Store) -> None:
        source = "text = 'ß 😀 \0 \\u0000 \" \\n'\n\ttab = \"'; DROP TABLE records; --\"\r\n"
        await store.create(APPS, "a", AppSpec(source=AppSource(inline=source)))
        assert (await store.get(APPS, "a")).spec.inline_source == source

    async def test_records_are_listed_by_name(self, store: Store) -> None:
        for name in ("b", "c", "a"):
            await store.create(APPS, name, ONE)
        assert [record.name for record in (await store.list(APPS)).records] == ["a", "b", "c"]

    async def test_a_name_cannot_be_created_twice(self, store: Store, other: Store) -> None:
        first = await store.create(APPS, "a", ONE)
        with pytest.raises(AlreadyExistsError, match="'a'"):
            await other.create(APPS, "a", TWO)
        assert await store.get(APPS, "a") == first

    async def test_one_of_several_concurrent_creates_of_a_name_succeeds(self, store: Store, other: Store) -> None:
        attempts = [client.create(APPS, "a", ONE) for client in (store, other) for _ in range(4)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        created = [result for result in results if isinstance(result, Record)]
        assert created == [await store.get(APPS, "a")]
        assert sum(isinstance(result, AlreadyExistsError) for result in results) == 7

    async def test_a_missing_record_cannot_be_read_or_written(self, store: Store) -> None:
        calls: list[Coroutine[Any, Any, object]] = [
            store.get(APPS, "a"),
            store.update_spec(APPS, "a", ONE, 0),
            store.update_status(APPS, "a", AppStatus(), 0),
            store.delete(APPS, "a"),
        ]
        for call in calls:
            with pytest.raises(NotFoundError, match="'a'"):
                await call

    async def test_a_deleted_record_is_gone(self, store: Store, other: Store) -> None:
        await store.create(APPS, "a", ONE)
        await store.delete(APPS, "a")
        assert (await other.list(APPS)).records == []
        with pytest.raises(NotFoundError):
            await other.get(APPS, "a")

    async def test_a_name_that_is_created_again_gets_a_new_uid(self, store: Store) -> None:
        first = await store.create(APPS, "a", ONE)
        first = await store.update_status(APPS, "a", status_with("old"), first.version)
        await store.delete(APPS, "a")
        second = await store.create(APPS, "a", ONE)
        assert second.uid != first.uid
        assert second.version > first.version
        assert (second.generation, second.status) == (1, AppStatus())

    async def test_every_write_increases_the_version(self, store: Store, other: Store) -> None:
        first = await store.create(APPS, "a", ONE)
        second = await other.create(APPS, "b", ONE)
        third = await store.update_status(APPS, "a", status_with("hello"), first.version)
        fourth = await other.update_spec(APPS, "b", TWO, second.version)
        versions = [record.version for record in (first, second, third, fourth)]
        assert versions == sorted(set(versions))
        assert (await store.list(APPS)).version >= fourth.version

    # Spec and status

    async def test_a_new_spec_increments_the_generation_and_keeps_the_status(self, store: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        record = await store.update_status(APPS, "a", status_with("hello"), record.version)
        updated = await store.update_spec(APPS, "a", TWO, record.version)
        assert (updated.generation, updated.spec, updated.status) == (2, TWO, status_with("hello"))
        assert updated.uid == record.uid

    async def test_a_new_status_keeps_spec_and_generation(self, store: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        updated = await store.update_status(APPS, "a", status_with("hello"), record.version)
        assert (updated.generation, updated.spec, updated.status) == (1, ONE, status_with("hello"))
        assert updated.uid == record.uid

    async def test_an_equal_spec_or_status_changes_nothing(self, store: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        assert await store.update_spec(APPS, "a", ONE.model_copy(), record.version) == record
        assert await store.update_status(APPS, "a", AppStatus(), record.version) == record
        async with open_watch(store, record.version) as watch:
            await store.delete(APPS, "a")
            [change] = await read_changes(watch, 1)
        assert change.type is ChangeType.DELETED

    async def test_a_spec_may_be_based_on_a_version_before_a_status_write(self, store: Store, other: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        await other.update_status(APPS, "a", status_with("hello"), record.version)
        updated = await store.update_spec(APPS, "a", TWO, record.version)
        assert (updated.spec, updated.status) == (TWO, status_with("hello"))

    async def test_a_spec_based_on_an_old_spec_is_rejected(self, store: Store, other: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        updated = await other.update_spec(APPS, "a", TWO, record.version)
        for spec in (ONE, TWO):
            with pytest.raises(ConflictError):
                await store.update_spec(APPS, "a", spec, record.version)
        assert await store.get(APPS, "a") == updated

    async def test_a_status_based_on_an_old_spec_is_rejected(self, store: Store, other: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        await other.update_spec(APPS, "a", TWO, record.version)
        with pytest.raises(ConflictError):
            await store.update_status(APPS, "a", status_with("hello"), record.version)

    async def test_a_status_based_on_an_old_status_is_rejected(self, store: Store, other: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        await other.update_status(APPS, "a", status_with("first"), record.version)
        with pytest.raises(ConflictError):
            await store.update_status(APPS, "a", status_with("second"), record.version)

    async def test_a_write_based_on_a_deleted_record_does_not_change_its_successor(self, store: Store) -> None:
        old = await store.create(APPS, "a", ONE)
        await store.delete(APPS, "a")
        new = await store.create(APPS, "a", ONE)
        with pytest.raises(ConflictError):
            await store.update_spec(APPS, "a", TWO, old.version)
        with pytest.raises(ConflictError):
            await store.update_status(APPS, "a", status_with("hello"), old.version)
        assert await store.get(APPS, "a") == new

    async def test_clients_that_retry_on_conflicts_lose_no_update(self, store: Store, other: Store) -> None:
        await store.create(APPS, "a", ONE)

        async def add_one(client: Store) -> None:
            while True:
                record = await client.get(APPS, "a")
                more = record.spec.model_copy(update={"replicas": record.spec.replicas + 1})
                try:
                    await client.update_spec(APPS, "a", more, record.version)
                except ConflictError:
                    continue
                return

        async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as tasks:
            for client in (store, other) * 4:
                tasks.create_task(add_one(client))
        record = await store.get(APPS, "a")
        assert (record.spec.replicas, record.generation) == (9, 9)

    async def test_a_record_over_the_size_limit_is_rejected(self, store: Store) -> None:
        large, too_large = "x" * (MAX_RECORD_BYTES // 2), "x" * MAX_RECORD_BYTES
        with pytest.raises(RecordTooLargeError):
            await store.create(APPS, "a", AppSpec(source=AppSource(inline=too_large)))
        record = await store.create(APPS, "a", AppSpec(source=AppSource(inline=large)))
        with pytest.raises(RecordTooLargeError):
            await store.update_spec(APPS, "a", AppSpec(source=AppSource(inline=too_large)), record.version)
        with pytest.raises(RecordTooLargeError):
            await store.update_status(APPS, "a", status_with(large), record.version)
        assert (await store.list(APPS)).records == [record]

    # Watching

    async def test_a_watch_yields_every_change_in_order(self, store: Store, other: Store) -> None:
        start = (await store.list(APPS)).version
        created = await other.create(APPS, "a", ONE)
        updated = await store.update_spec(APPS, "a", TWO, created.version)
        reported = await other.update_status(APPS, "a", status_with("hello"), updated.version)
        await store.delete(APPS, "a")
        async with open_watch(store, start) as watch:
            *puts, deletion = await read_changes(watch, 4)
        assert puts == [Change(ChangeType.PUT, record.version, record) for record in (created, updated, reported)]
        assert deletion.type is ChangeType.DELETED
        assert deletion.record.version == deletion.version > reported.version
        assert (deletion.record.uid, deletion.record.status) == (created.uid, status_with("hello"))

    async def test_a_watch_starts_at_any_version(self, store: Store) -> None:
        records = [await store.create(APPS, name, ONE) for name in "abcd"]
        for index, record in enumerate(records[:-1]):
            async with open_watch(store, record.version) as watch:
                [change] = await read_changes(watch, 1)
            assert change.record == records[index + 1]

    async def test_a_watch_yields_later_changes_of_every_client(self, store: Store, other: Store) -> None:
        async with open_watch(store, (await store.list(APPS)).version) as watch:
            for number, writer in enumerate((store, other, store, other)):
                pending = asyncio.create_task(read_changes(watch, 1))
                record = await writer.create(APPS, f"app-{number}", ONE)
                assert [change.record for change in await pending] == [record]

    async def test_every_watch_yields_every_change(self, store: Store, other: Store) -> None:
        start = (await store.list(APPS)).version
        async with open_watch(store, start) as a, open_watch(store, start) as b, open_watch(other, start) as c:
            reading = asyncio.gather(*(read_changes(watch, 3) for watch in (a, b, c)))
            records = [await store.create(APPS, name, ONE) for name in "abc"]
            assert [[change.record for change in each] for each in await reading] == [records] * 3

    async def test_the_store_works_after_a_watch_is_cancelled(self, store: Store) -> None:
        start = (await store.list(APPS)).version
        await store.create(APPS, "a", ONE)
        async with open_watch(store, start) as watch:
            await read_changes(watch, 1)
            waiting = asyncio.create_task(read_changes(watch, 1))
            await store.get(APPS, "a")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await store.delete(APPS, "a")
        assert (await store.list(APPS)).records == []

    async def test_a_watch_may_stop_between_changes(self, store: Store) -> None:
        start = (await store.list(APPS)).version
        await store.create(APPS, "a", ONE)
        await store.create(APPS, "b", ONE)
        async for change in store.watch(APPS, start):
            assert change.record.name == "a"
            break
        await store.delete(APPS, "a")
        assert [record.name for record in (await store.list(APPS)).records] == ["b"]

    async def test_a_watch_from_a_future_version_expires(self, store: Store) -> None:
        record = await store.create(APPS, "a", ONE)
        async with open_watch(store, record.version + 1_000_000) as watch:
            with pytest.raises(ExpiredError):
                await read_changes(watch, 1)

    @settings(
        max_examples=15,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from(["create", "update_spec", "update_status", "delete"]),
                st.sampled_from(["a", "b", "c"]),
                st.integers(1, 3),
            ),
            max_size=12,
        )
    )
    async def test_a_listing_plus_its_later_changes_equals_the_next_listing(
        self, store: Store, other: Store, steps: list[tuple[str, str, int]]
    ) -> None:
        for record in (await store.list(APPS)).records:
            await store.delete(APPS, record.name)
        listings = [await store.list(APPS)]
        for index, (operation, name, number) in enumerate(steps):
            await _run_step((store, other)[index % 2], operation, name, number)
            listings.append(await store.list(APPS))
        await store.create(APPS, "end", ONE)
        final = (await other.list(APPS)).records

        for listing in listings:
            records = {record.name: record for record in listing.records}
            async with asyncio.timeout(TIMEOUT_SECONDS), open_watch(other, listing.version) as watch:
                while "end" not in records:
                    _apply_change(await anext(watch), records)
            assert sorted(records.values(), key=lambda record: record.name) == final

    # Interruptions

    async def test_a_cancelled_write_is_atomic_and_blocks_no_other_write(self, store: Store, other: Store) -> None:
        steps, finished = 1, False
        while not finished:
            writing = asyncio.create_task(store.create(APPS, f"cancelled-{steps}", ONE))
            for _ in range(steps):
                await asyncio.sleep(0)
            finished = writing.done()
            writing.cancel()
            await asyncio.wait([writing])
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await other.create(APPS, f"after-{steps}", ONE)
            steps += 1 + steps // 8

        async def is_consistent() -> bool:
            # The versions differ if other kinds of records are written. A server may execute a cancelled write later.
            return (await store.list(APPS)).records == (await other.list(APPS)).records

        await until(is_consistent)

    async def test_records_persist_after_their_clients_close(self, connect: Connect) -> None:
        async with connect() as store:
            record = await store.create(APPS, "a", ONE)
        async with connect() as store:
            assert await store.get(APPS, "a") == record
            await store.delete(APPS, "a")


async def _run_step(store: Store, operation: str, name: str, number: int) -> None:
    """Writes unless the record exists (create) or does not exist (other writes)."""
    spec = AppSpec(model=AppModel(id="m"), replicas=number)
    with suppress(AlreadyExistsError, NotFoundError):
        match operation:
            case "create":
                await store.create(APPS, name, spec)
            case "update_spec":
                await store.update_spec(APPS, name, spec, (await store.get(APPS, name)).version)
            case "update_status":
                await store.update_status(APPS, name, status_with(str(number)), (await store.get(APPS, name)).version)
            case "delete":
                await store.delete(APPS, name)


def _apply_change(change: AppChange, records: dict[str, AppRecord]) -> None:
    if change.type is ChangeType.DELETED:
        del records[change.record.name]
    else:
        records[change.record.name] = change.record
