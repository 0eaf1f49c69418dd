from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.control.store.sqlite import SqliteStore
from tests.unit.control.running_controller import StoreClient


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoreClient]:
    monkeypatch.setattr("cornserve.control.controller.RETRY_SECONDS", 0.02)
    store = await SqliteStore.open(tmp_path / "state.db")
    yield StoreClient(store)
    await store.close()
