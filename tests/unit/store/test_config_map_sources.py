from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.app.record import AppStatus
from cornserve.app.settings import ConfigMapKeyRef
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.config_map_sources import ConfigMapSources
from cornserve.control.store.sqlite import SqliteStore
from tests.unit.fake_config_maps import FakeConfigMaps
from tests.unit.store.conformance import open_watch, read_changes

REFERENCE = AppSpec(source=AppSource(config_map_key_ref=ConfigMapKeyRef(name="brief", key="brief.py")))


@pytest.fixture
def config_maps() -> FakeConfigMaps:
    return FakeConfigMaps()


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@pytest.fixture
def store(stored: Store, config_maps: FakeConfigMaps) -> ConfigMapSources:
    return ConfigMapSources(stored, config_maps)


async def test_an_app_has_the_source_of_its_config_map(
    store: ConfigMapSources, stored: Store, config_maps: FakeConfigMaps
) -> None:
    config_maps.put("brief", brief="text")

    created = await store.create(APPS, "a", REFERENCE)

    assert created.spec == AppSpec(source=AppSource(inline="text"))
    assert (await store.list(APPS)).records == [created] == [await store.get(APPS, "a")]
    updated = await store.update_status(APPS, "a", AppStatus(message="hello"), created.version)
    assert updated.spec == AppSpec(source=AppSource(inline="text"))
    assert (await stored.get(APPS, "a")).spec == REFERENCE


@pytest.mark.parametrize("data", [{}, {"other": "text"}])
async def test_an_app_without_its_config_map_keeps_the_reference(
    store: ConfigMapSources, config_maps: FakeConfigMaps, data: dict[str, str]
) -> None:
    config_maps.put("brief", **data)

    assert (await store.create(APPS, "a", REFERENCE)).spec == REFERENCE


async def test_a_watch_yields_an_app_again_when_its_config_map_changes(
    store: ConfigMapSources, config_maps: FakeConfigMaps
) -> None:
    created = await store.create(APPS, "a", REFERENCE)
    await store.create(APPS, "b", AppSpec(source=AppSource(inline="inline")))
    listing = await store.list(APPS)

    async with open_watch(store, listing.version) as watch:
        for change in ("first", "second"):
            config_maps.put("brief", brief=change)
            await store.get(APPS, "a")  # other reads do not hide the change from the watch
            (changed,) = await read_changes(watch, 1)
            assert changed.record.spec == AppSpec(source=AppSource(inline=change))
            assert (changed.record.name, changed.record.version) == ("a", created.version)
        config_maps.delete("brief")
        (changed,) = await read_changes(watch, 1)
        assert changed.record.spec == REFERENCE


async def test_a_watch_yields_the_changes_of_the_store(store: ConfigMapSources, config_maps: FakeConfigMaps) -> None:
    config_maps.put("brief", brief="text")
    created = await store.create(APPS, "a", REFERENCE)

    async with open_watch(store, created.version) as watch:
        config_maps.put("other", other="unused")
        await store.update_status(APPS, "a", AppStatus(message="hello"), created.version)
        await store.delete(APPS, "a")
        await store.create(APPS, "b", AppSpec(source=AppSource(inline="inline")))
        updated, deleted, b = await read_changes(watch, 3)

    assert (updated.record.spec.inline_source, updated.record.status.message) == ("text", "hello")
    assert (deleted.type, b.record.name) == ("deleted", "b")
