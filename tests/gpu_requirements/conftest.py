"""The packages of `requirements/gpu.txt` on a machine without a GPU (`scripts/gpu_requirements`)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_requirements.cards import H100, Card, described_platform


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loads vLLM's compiled kernels, with an empty library instead of the driver's: their functions are not called."""
    driver = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = driver.with_suffix(".c")
    source.touch()
    subprocess.run(["cc", "-shared", f"-Wl,-soname,{driver.name}", source, "-o", driver], check=True)
    ctypes.CDLL(str(driver), ctypes.RTLD_GLOBAL)
    sys.setdlopenflags(os.RTLD_LAZY)
    # vLLM then accepts Triton without an active driver, because the GPUs may be assigned later.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture(scope="session")
def platform(kernels: None) -> Any:
    """vLLM's platform for CUDA, with cards that are described."""
    import vllm.platforms

    vllm.platforms._current_platform = described_platform()
    return vllm.platforms.current_platform


@pytest.fixture
def card(platform: Any, request: pytest.FixtureRequest) -> Card:
    """The card of the machine: an H100, or the parameter of the test."""
    chosen: Card = getattr(request, "param", H100)
    type(platform).card = chosen
    return chosen


@pytest.fixture
def validated(card: Card, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Any]:
    """Returns a function that calls the constructor of an engine, and returns the configuration that vLLM validates.

    The engine is not started.
    """
    from vllm.v1.engine.async_llm import AsyncLLM

    from cornserve_executors.vllm import settings

    class ValidatedError(Exception):
        pass

    def raise_config(config: Any, **_: Any) -> None:
        raise ValidatedError(config)

    monkeypatch.setattr(AsyncLLM, "from_vllm_config", raise_config)
    settings.prepare_environment()

    def validate(create_engine: Callable[[], object]) -> Any:
        with pytest.raises(ValidatedError) as raised:
            create_engine()
        return raised.value.args[0]

    return validate


@pytest.fixture(scope="session")
def models() -> Path:
    return Path(__file__).parents[1] / "models"
