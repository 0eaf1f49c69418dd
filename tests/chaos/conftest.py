from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cornserve.home import Home
from tests.integration.cli.cli_instance import SLAB_MIB, CliInstance
from tests.models.cache import cached_model

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture(scope="module")
def module_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    with running_instance(tmp_path_factory.mktemp("machine") / "home") as machine:
        yield machine


@pytest.fixture
def machine(module_machine: CliInstance) -> Iterator[CliInstance]:
    """An instance of Cornserve that the tests of a module share. The apps of each test are deleted at its end."""
    yield module_machine
    module_machine.delete_apps()


@contextmanager
def running_instance(home: Path, *options: str, cpu_slots: int = 4, slab_mib: int = SLAB_MIB) -> Iterator[CliInstance]:
    """Starts an instance with options of `cornserve up`, and stops it at the end of the block."""
    machine = CliInstance(Home(home))
    machine.up(*options, cpu_slots=cpu_slots, slab_mib=slab_mib)
    try:
        yield machine
    finally:
        machine.remove()


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    return cached_model(MODELS / "tiny_llama.py", MODELS / "byte_tokenizer.py")
