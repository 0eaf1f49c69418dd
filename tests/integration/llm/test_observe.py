"""Metrics, traces and logs of a language executor. They do not contain requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cornserve_tasklib import ChatRequest, LLMTask
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.llm.client import ExecutorClient, connected
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess, running_executor
from tests.integration.observe.collector import Span, TraceCollector, running_collector
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

MARKER = "the patient is called Smith"


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    """Collects the traces of `executor`."""
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def executor(
    tiny_task: LLMTask,
    collector: TraceCollector,
    fork_variables: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ExecutorProcess]:
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    directory = tmp_path_factory.mktemp("executor")
    with running_executor(tiny_task, directory, environment=fork_variables | tracing) as executor:
        executor.until_ready()
        yield executor


@pytest.fixture
async def client(executor: ExecutorProcess) -> AsyncIterator[ExecutorClient]:
    async with connected(executor.endpoint) as client:
        yield client


async def scrape(executor: ExecutorProcess) -> str:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"http://127.0.0.1:{executor.metrics_port}/metrics")).text


async def test_every_metric_of_language_models_is_documented(executor: ExecutorProcess, client: ExecutorClient) -> None:
    await client.invoke(ChatRequest.ask("Hello", max_tokens=4))

    found = {
        (family.name, family.type, frozenset(name for sample in family.samples for name in sample.labels) - {"le"})
        for family in text_string_to_metric_families(await scrape(executor))
        if family.name.startswith("cornserve_") and not family.name.startswith("cornserve_transport_")
    }

    headings = ("## Executors", "## Language models", "## KV caches", "## Limits of language models")
    assert found == set().union(*map(documented_metrics, headings))


async def test_metrics_report_the_latency_of_a_request(executor: ExecutorProcess, client: ExecutorClient) -> None:
    before = await executor.metrics()
    await client.invoke(ChatRequest.ask("Hello", max_tokens=5))
    after = await executor.metrics()

    def increase(name: str) -> float:
        return after[f"cornserve_llm_{name}"] - before[f"cornserve_llm_{name}"]

    assert increase("generation_tokens_total") == 5
    assert increase("time_to_first_token_seconds_count") == 1
    assert increase("inter_token_latency_seconds_count") == 4
    assert increase("e2e_request_latency_seconds_count") == increase("request_queue_time_seconds_count") == 1
    assert 0 < increase("request_decode_time_seconds_sum") < increase("e2e_request_latency_seconds_sum")


async def test_a_trace_contains_the_spans_of_the_engine(client: ExecutorClient, collector: TraceCollector) -> None:
    await client.invoke(ChatRequest.ask("Hello", max_tokens=7))

    def run_of_seven_tokens() -> Span | None:
        runs = (span for span in collector.spans() if span.name == "run LLMExecutor")
        return next((run for run in runs if run.attributes.get("gen_ai.usage.output_tokens") == 7), None)

    await until(lambda: run_of_seven_tokens() is not None)
    run = run_of_seven_tokens()
    assert run is not None
    parts = [span for span in collector.spans(run.trace) if span.id != run.id]
    assert [span.name for span in parts] == ["queue", "prefill", "decode"]
    assert {span.parent for span in parts} == {run.id}


async def test_logs_metrics_and_spans_do_not_contain_requests(
    executor: ExecutorProcess, client: ExecutorClient, collector: TraceCollector
) -> None:
    served = await client.invoke(ChatRequest.ask(MARKER, max_tokens=4))
    rejected = await client.invoke(ChatRequest.ask(MARKER * CONTEXT, max_tokens=4))

    assert (served.code, rejected.code) == ("OK", "INVALID_ARGUMENT")
    assert MARKER not in executor.log.read_text()
    assert MARKER not in await scrape(executor)
    assert MARKER not in str(collector.received)
