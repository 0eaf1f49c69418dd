"""Fixtures for executors of the echo package that run in the test process, and for app hosts.

Unit tests do not load engines, because each pytest worker would need a gigabyte and many seconds.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
import typer.main
import typer.testing

from cornserve.app_host.fork_client import ForkServer
from cornserve.app_host.fork_server_process import ForkServerProcess
from cornserve_echo import EchoTask
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors

ENGINES = ("torch", "transformers", "vllm", "diffusers")

QUEUE = 1024
"""The number of invocations that an executor takes. Tests may override the fixture `queue`."""


def loaded_engines() -> set[str]:
    return {name for name in ENGINES if name in sys.modules}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fails the collection of a module that loads an engine."""
    before = loaded_engines()
    report = yield
    if added := loaded_engines() - before:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} loads {', '.join(sorted(added))}: test engines in tests/integration"
    return report


@pytest.fixture(autouse=True)
def no_engine_is_loaded() -> Iterator[None]:
    before = loaded_engines()
    yield
    assert loaded_engines() == before, "test engines in tests/integration"


@pytest.fixture(scope="session", autouse=True)
def commands_are_built_once() -> Iterator[None]:
    """Caches the commands of applications, because building them takes longer than running one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def queue() -> int:
    return QUEUE


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
