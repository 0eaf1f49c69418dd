from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.control.store.base import Store
from cornserve.control.store.sqlite import SqliteStore
from tests.unit.control.running_controller import StoreClient


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@pytest.fixture
def client(store: Store, monkeypatch: pytest.MonkeyPatch) -> StoreClient:
    monkeypatch.setattr("cornserve.control.controller.RETRY_SECONDS", 0.02)
    monkeypatch.setattr("cornserve.control.preparation.FIRST_PAUSE", 0.02)
    return StoreClient(store)
