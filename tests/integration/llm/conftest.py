from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cornserve_tasklib import EngineOptions, LLMTask
from tests.integration.llm.client import ExecutorClient, connected
from tests.integration.llm.process import ExecutorProcess, running_executor

CONTEXT = 4096


@pytest.fixture(scope="session")
def tiny_task(tiny_llama: Path) -> LLMTask:
    return LLMTask(
        model_id=str(tiny_llama),
        tool_parser="hermes",
        options=EngineOptions(max_model_len=CONTEXT, kv_cache_memory_bytes=64 << 20),
    )


@pytest.fixture(scope="package")
def executor(
    tiny_task: LLMTask, fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExecutorProcess]:
    """An executor shared by all tests that do not change it."""
    with running_executor(tiny_task, tmp_path_factory.mktemp("executor"), environment=fork_variables) as executor:
        executor.until_ready()
        yield executor


@pytest.fixture
async def client(executor: ExecutorProcess) -> AsyncIterator[ExecutorClient]:
    async with connected(executor.endpoint) as client:
        yield client
