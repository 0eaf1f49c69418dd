from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cornserve_executors.encoder.stats import EncoderStats
from tests.integration.encoder.engine import running_engine

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine


@pytest.fixture(params=["tiny_qwen25vl", pytest.param("tiny_internvl", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> Path:
    """A tiny model whose images keep their size, and one whose images have tiles."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def stats() -> EncoderStats:
    """The stats of `engine`."""
    return EncoderStats()


@pytest.fixture
async def engine(model: Path, stats: EncoderStats) -> AsyncIterator[EncoderEngine]:
    async with running_engine(model, stats) as engine:
        yield engine
