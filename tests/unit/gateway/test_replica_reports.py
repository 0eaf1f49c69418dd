"""The figures of replicas, from their metrics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cornserve.app.record import EngineTokens, GroupStatus
from cornserve.gateway.live.replica_reports import ReplicaReport, read_reports
from cornserve.gateway.observe import replica_reader
from cornserve.gateway.observe.engine_tokens import read_engine_tokens
from cornserve.gateway.observe.replica_memory import read_replica_memory
from cornserve.gateway.observe.replica_reader import MAX_METRICS_BYTES, MAX_REPLICAS
from tests.unit.gateway.answering_server import answering_server
from tests.unit.gateway.published_route import ready_group


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reader, "RESPONSE_SECONDS", 60.0)


def group_at(urls: Sequence[str]) -> GroupStatus:
    """Returns a group with a replica for each address of metrics."""
    addresses = [url.removeprefix("http://") for url in urls]
    group = ready_group("llm", [f"replica-{number}" for number, _ in enumerate(addresses)])
    replicas = [
        replica.model_copy(update={"metrics": address})
        for replica, address in zip(group.replicas, addresses, strict=True)
    ]
    return group.model_copy(update={"replicas": replicas})


async def test_metrics_that_arrive_in_parts_are_read() -> None:
    lines = b"cornserve_llm_num_requests_running 2.0\n", b"cornserve_llm_num_requests_waiting 3.0\n"

    async with answering_server(*lines) as (url, _):
        [report] = (await read_reports([group_at([url])])).values()

    assert (report.batch_size, report.queue) == (2.0, 3.0)


async def test_metrics_that_are_too_large_or_not_metrics_are_left_out() -> None:
    async with (
        answering_server(b"cornserve_llm_num_requests_running 2.0\n", b"#" * MAX_METRICS_BYTES) as (large, _),
        answering_server(b"cornserve_llm_num_requests_running {{{\n") as (other, _),
        answering_server(b"cornserve_llm_num_requests_running 2.0\n", status=500) as (failing, _),
    ):
        assert await read_reports([group_at([large, other, failing])]) == {}


async def test_values_that_are_not_finite_are_left_out() -> None:
    values = (
        b"cornserve_llm_num_requests_running NaN\n",
        b"cornserve_transport_received_bytes_total +Inf\n",
        b'cornserve_transport_slab_bytes{state="held"} NaN\n',
        b"cornserve_transport_slab_resident_bytes 7.0\n",
    )

    async with answering_server(*values) as (url, _):
        group = group_at([url])
        [report] = (await read_reports([group])).values()
        [memory] = await read_replica_memory([group])

    assert report == ReplicaReport()
    assert (memory.resident, memory.limit) == (7, 0)


async def test_the_tokens_of_an_engine_are_read() -> None:
    values = (
        b'cornserve_llm_engine_limit{limit="cache_tokens"} 4096.0\n',
        b'cornserve_llm_engine_limit{limit="block_size"} 16.0\n',
        b'cornserve_llm_engine_limit{limit="max_num_seqs"} 8.0\n',
        b'cornserve_llm_engine_limit{limit="max_num_batched_tokens"} 512.0\n',
        b'cornserve_llm_request_prompt_tokens_bucket{le="+Inf"} 3.0\n',
        b"cornserve_llm_request_prompt_tokens_count 3.0\ncornserve_llm_request_prompt_tokens_sum 300.0\n",
        b"cornserve_llm_request_generation_tokens_count 3.0\ncornserve_llm_request_generation_tokens_sum 30.0\n",
    )

    async with answering_server(*values) as (url, _):
        [tokens] = (await read_engine_tokens([group_at([url])])).values()

    assert tokens == EngineTokens(
        requests=3,
        prompt_tokens=300,
        generated_tokens=30,
        cache_tokens=4096,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=512,
    )


async def test_a_limited_number_of_replicas_is_read() -> None:
    async with answering_server(b"cornserve_llm_num_requests_running 2.0\n") as (url, received):
        reports = await read_reports([group_at([url] * (MAX_REPLICAS + 6))])

    assert len(reports) == len(received) == MAX_REPLICAS
