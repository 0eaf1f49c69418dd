from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cornserve_tasklib import EngineOptions, LLMTask
from tests.integration.llm.client import ExecutorClient, connected
from tests.integration.llm.process import ExecutorProcess, running_executor
from tests.integration.observe.collector import TraceCollector, running_collector

CONTEXT = 4096


@pytest.fixture(scope="session")
def tiny_task(tiny_llama: Path) -> LLMTask:
    return LLMTask(
        model_id=str(tiny_llama),
        tool_parser="hermes",
        options=EngineOptions(max_model_len=CONTEXT, kv_cache_memory_bytes=64 << 20),
    )


@pytest.fixture(scope="package")
def collector() -> Iterator[TraceCollector]:
    """Collects the traces of `executor`."""
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="package")
def executor(
    tiny_task: LLMTask, collector: TraceCollector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExecutorProcess]:
    """An executor shared by all tests that do not change it."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            executor = stack.enter_context(running_executor(tiny_task, tmp_path_factory.mktemp("executor")))
        executor.until_ready()
        yield executor


@pytest.fixture
async def client(executor: ExecutorProcess) -> AsyncIterator[ExecutorClient]:
    async with connected(executor.endpoint) as client:
        yield client
