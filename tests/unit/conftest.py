"""Fixtures for executors of the echo package that run in the test process, and for app hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from cornserve.app_host.fork_client import ForkServer
from cornserve.app_host.fork_server_process import ForkServerProcess
from cornserve_echo import EchoTask
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors


@pytest.fixture
def queue() -> int:
    """The number of invocations that an executor takes."""
    return 1024


@pytest.fixture
async def executors(queue: int) -> AsyncIterator[EchoExecutors]:
    executors = EchoExecutors(queue)
    yield executors
    await executors.close()


@pytest.fixture
async def endpoint(executors: EchoExecutors) -> str:
    return await executors.endpoint(EchoTask().spec)


@pytest.fixture
async def caller(endpoint: str) -> AsyncIterator[Caller]:
    async with calling(endpoint) as caller:
        yield caller


class SharedForkServerProcess(ForkServerProcess):
    """A fork server that all tests of a pytest worker use, because its start takes longer than a test."""

    def stop(self) -> None:
        """Does nothing: the next test uses the fork server."""

    def stop_now(self) -> None:
        super().stop()


@pytest.fixture(scope="session")
def fork_server_process() -> Iterator[SharedForkServerProcess]:
    process = SharedForkServerProcess.start()
    yield process
    process.stop_now()


@pytest.fixture
async def fork_server(fork_server_process: SharedForkServerProcess) -> AsyncIterator[ForkServer]:
    server = ForkServer(lambda: fork_server_process)
    yield server
    await server.close()
