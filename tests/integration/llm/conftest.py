from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cornserve.task import UnitTask
from cornserve_tasklib import EngineOptions, LLMTask
from tests.integration.engine_pool import EnginePool
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


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def executors(
    fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EnginePool[ExecutorProcess]]:
    """Executors that tests share if they do not change them."""

    @asynccontextmanager
    async def run(task: UnitTask[Any, Any]) -> AsyncIterator[ExecutorProcess]:
        with running_executor(task, tmp_path_factory.mktemp("executor"), environment=fork_variables) as executor:
            executor.until_ready()
            yield executor

    pool = EnginePool(run, lambda executor: executor.process.poll() is None)
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="session")
async def executor(executors: EnginePool[ExecutorProcess], tiny_task: LLMTask) -> ExecutorProcess:
    return await executors.engine(tiny_task)


@pytest.fixture
async def client(executor: ExecutorProcess) -> AsyncIterator[ExecutorClient]:
    async with connected(executor.endpoint) as client:
        yield client
