from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cornserve.home import Home
from tests.integration.cli.machine import Machine


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[[], Machine]]:
    """Machines with nothing on them, and nothing left of them in the end."""
    machines: list[Machine] = []

    def new() -> Machine:
        machines.append(Machine(Home(tmp_path / f"home-{len(machines)}")))
        return machines[-1]

    yield new
    for machine in machines:
        machine.run("down")
        machine.kill_everything()


@pytest.fixture
def machine(new_machine: Callable[[], Machine]) -> Machine:
    return new_machine()
