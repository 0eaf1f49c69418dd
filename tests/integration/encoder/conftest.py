"""Encoders in the test process, and the event loop of all tests, to which the shared encoders belong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.encoder.engine import encoder_task, running_engine
from tests.integration.engine_pool import EnginePool

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine


def pytest_itemcollected(item: pytest.Item) -> None:
    if pytest_asyncio.is_async_test(item):
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(params=["tiny_qwen25vl", pytest.param("tiny_internvl", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Path:
    """A tiny model whose images keep their size, and one whose images have tiles."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def engines() -> AsyncIterator[EnginePool[EncoderEngine]]:
    """Encoders that tests share."""
    pool = EnginePool(running_engine)
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="session")
async def engine(engines: EnginePool[EncoderEngine], model: Path) -> EncoderEngine:
    return await engines.engine(encoder_task(model))
