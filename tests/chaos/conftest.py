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


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CliInstance]:
    """Starts an instance of Cornserve."""
    with running_instance(tmp_path / "home") as machine:
        yield machine


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
