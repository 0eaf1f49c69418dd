from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cornserve.home import Home
from tests.integration.cli.cli_instance import CliInstance


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
    return new_instance()
