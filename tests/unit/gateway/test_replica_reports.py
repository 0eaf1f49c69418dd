"""The figures of replicas, from their metrics."""

from __future__ import annotations

import pytest

from cornserve.gateway.live import replica_reports
from cornserve.gateway.live.replica_reports import read_reports
from tests.unit.gateway.answering_server import answering_server
from tests.unit.gateway.published_route import ready_group


async def test_metrics_that_arrive_in_parts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reports, "RESPONSE_SECONDS", 60.0)
    lines = b"cornserve_llm_num_requests_running 2.0\n", b"cornserve_llm_num_requests_waiting 3.0\n"

    async with answering_server(*lines) as (url, _):
        address = url.removeprefix("http://")
        group = ready_group("llm", [address])
        group = group.model_copy(
            update={"replicas": [each.model_copy(update={"metrics": address}) for each in group.replicas]}
        )
        [report] = (await read_reports([group])).values()

    assert (report.batch_size, report.queue) == (2.0, 3.0)
