"""What a gateway serves follows the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cornserve.control.store.base import Store, UnavailableError
from cornserve.gateway import apps as apps_module
from cornserve.gateway.apps import Apps
from cornserve.gateway.replica import Replicas
from tests.waiting import until


@pytest.fixture
async def apps(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Apps]:
    """Followed while the test runs."""
    monkeypatch.setattr(apps_module, "RETRY_SECONDS", 0.05)
    replicas = Replicas()
    apps = Apps(store, replicas)
    yield apps
    await replicas.close()


@pytest.mark.parametrize("method", ["list", "watch"])
async def test_a_store_that_fails_is_read_again_and_meanwhile_the_gateway_is_not_ready(
    store: Store, apps: Apps, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        failures += 1
        assert method == "list" or apps.synced.is_set()
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, method, fail)
        following = asyncio.create_task(apps.follow())
        await until(lambda: failures >= 2 and not apps.synced.is_set())
    await until(apps.synced.is_set)

    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
