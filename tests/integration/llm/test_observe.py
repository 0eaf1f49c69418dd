"""What a language model's executor tells of itself; and what it keeps to itself."""

from __future__ import annotations

import httpx2 as httpx
from prometheus_client.parser import text_string_to_metric_families

from cornserve_tasklib import ChatRequest
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.llm.client import ExecutorClient
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess
from tests.integration.observe.collector import Collector, Span
from tests.waiting import until

MARKER = "the patient is called Smith"


async def metrics(executor: ExecutorProcess) -> str:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"http://127.0.0.1:{executor.metrics_port}/metrics")).text


async def test_every_metric_of_language_models_is_told(executor: ExecutorProcess, client: ExecutorClient) -> None:
    await client.invoke(ChatRequest.ask("Hello", max_tokens=4))

    found = {
        (family.name, family.type, frozenset(name for sample in family.samples for name in sample.labels) - {"le"})
        for family in text_string_to_metric_families(await metrics(executor))
        if family.name.startswith("cornserve_") and not family.name.startswith("cornserve_transport_")
    }

    assert found == documented_metrics("## Executors") | documented_metrics("## Language models")


async def test_a_request_is_timed_by_the_engine(executor: ExecutorProcess, client: ExecutorClient) -> None:
    before = await executor.metrics()
    await client.invoke(ChatRequest.ask("Hello", max_tokens=5))
    after = await executor.metrics()

    def grew(name: str) -> float:
        return after[f"cornserve_llm_{name}"] - before[f"cornserve_llm_{name}"]

    assert grew("generation_tokens_total") == 5
    assert grew("time_to_first_token_seconds_count") == 1
    assert grew("inter_token_latency_seconds_count") == 4
    assert grew("e2e_request_latency_seconds_count") == grew("request_queue_time_seconds_count") == 1
    assert 0 < grew("request_decode_time_seconds_sum") < grew("e2e_request_latency_seconds_sum")


async def test_a_trace_tells_what_the_engine_did(client: ExecutorClient, collector: Collector) -> None:
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


async def test_what_clients_send_is_in_no_log_no_metric_and_no_span(
    executor: ExecutorProcess, client: ExecutorClient, collector: Collector
) -> None:
    served = await client.invoke(ChatRequest.ask(MARKER, max_tokens=4))
    refused = await client.invoke(ChatRequest.ask(MARKER * CONTEXT, max_tokens=4))

    assert (served.code, refused.code) == ("OK", "INVALID_ARGUMENT")
    assert MARKER not in executor.log.read_text()
    assert MARKER not in await metrics(executor)
    assert MARKER not in str(collector.received)
