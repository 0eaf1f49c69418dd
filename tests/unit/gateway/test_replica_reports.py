"""The figures of replicas, from their metrics."""

from __future__ import annotations

import asyncio

import pytest

from cornserve.gateway.live import replica_reports
from cornserve.gateway.live.replica_reports import read_reports
from tests.unit.gateway.published_route import ready_group


async def test_metrics_that_arrive_in_parts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reports, "RESPONSE_SECONDS", 60.0)
    lines = b"cornserve_llm_num_requests_running 2.0\n", b"cornserve_llm_num_requests_waiting 3.0\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % sum(map(len, lines)))
        for line in lines:
            writer.write(line)
            await writer.drain()
            await asyncio.sleep(0.01)  # The client receives each line alone.
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        group = ready_group("llm", [address])
        group = group.model_copy(
            update={"replicas": [each.model_copy(update={"metrics": address}) for each in group.replicas]}
        )
        [report] = (await read_reports([group])).values()

    assert (report.batch_size, report.queue) == (2.0, 3.0)
