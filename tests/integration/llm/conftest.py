from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cornserve_tasklib import LLMTask
from tests.integration.llm.client import Client, connected
from tests.integration.llm.process import ExecutorProcess, running

CONTEXT = 4096


@pytest.fixture(scope="session")
def tiny_task(tiny_llama: Path) -> LLMTask:
    return LLMTask(model_id=str(tiny_llama), max_model_len=CONTEXT, kv_cache_memory_bytes=64 << 20)


@pytest.fixture(scope="session")
def executor(tiny_task: LLMTask, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorProcess]:
    """One executor for all tests that leave it as it was."""
    with running(tiny_task, tmp_path_factory.mktemp("executor")) as executor:
        executor.until_ready()
        yield executor


@pytest.fixture
async def client(executor: ExecutorProcess) -> AsyncIterator[Client]:
    async with connected(executor.endpoint) as client:
        yield client
