from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance


@pytest.fixture(scope="session")
def session_instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    instance = CliInstance(Home(tmp_path_factory.mktemp("session") / "home"))
    instance.home.path.mkdir(mode=0o755)
    umask = os.umask(0o022)
    try:
        instance.up("--gateways", "2", cpu_slots=6)
        os.umask(umask)
        yield instance
    finally:
        instance.remove()


@pytest.fixture
def shared(session_instance: CliInstance) -> Iterator[CliInstance]:
    """An instance with two gateways that tests share. The apps of each test are deleted at its end."""
    yield session_instance
    session_instance.delete_apps()


@pytest.fixture
def new_instance(tmp_path: Path) -> Iterator[Callable[[], CliInstance]]:
    """Returns a function that creates instances with empty homes, which are stopped at the end."""
    instances: list[CliInstance] = []

    def new() -> CliInstance:
        instances.append(CliInstance(Home(tmp_path / f"home-{len(instances)}")))
        return instances[-1]

    yield new
    for instance in instances:
        instance.remove()


@pytest.fixture
def instance(new_instance: Callable[[], CliInstance]) -> CliInstance:
    """An instance that no other test uses. It does not run yet."""
    return new_instance()
