"""Fixtures for executors of the echo package that run in the test process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cornserve_echo import EchoTask
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors


@pytest.fixture
async def executors() -> AsyncIterator[EchoExecutors]:
    executors = EchoExecutors()
    yield executors
    await executors.close()


@pytest.fixture
async def endpoint(executors: EchoExecutors) -> str:
    return await executors.endpoint(EchoTask().spec)


@pytest.fixture
async def caller(endpoint: str) -> AsyncIterator[Caller]:
    async with calling(endpoint) as caller:
        yield caller
