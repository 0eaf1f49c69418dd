"""The reads of streams for functions of an app that map them."""

from __future__ import annotations

from math import inf
from typing import Any, cast

from cornserve.app_host.app_host import AppHost
from cornserve.app_host.description import AppDescription
from cornserve.gateway.task_runs.hosted_runner import MAX_SOURCE_READS, HostedRunner
from cornserve.gateway.task_runs.stream_buffer import StreamBuffer
from cornserve.gateway.task_runs.task_runner import RunSettings
from cornserve.v1 import app_host_pb2 as pb
from cornserve_policies.replayable_random import ReplayableRandom


class FakeApp:
    """Keeps the hosts that are replaced."""

    name = "app"
    description = AppDescription(
        name="app",
        paths=["Task"],
        shares=[1],
        max_invocations=1,
        operations=frozenset(),
        finds_media=False,
        executor_specs={},
        library_paths=None,
    )

    def __init__(self) -> None:
        self.replaced: list[AppHost] = []

    async def host(self) -> AppHost:
        raise NotImplementedError

    def replace(self, host: AppHost, error: pb.HostError) -> None:
        self.replaced.append(host)

    def end_session(self, number: int, host: AppHost | None) -> None: ...


async def test_a_host_that_reads_without_end_is_replaced() -> None:
    app, buffer, host = FakeApp(), StreamBuffer(), cast(AppHost, object())
    settings = RunSettings(
        "key", ReplayableRandom("key"), inf, lambda origin: buffer, lambda seconds: None, cast(Any, None)
    )
    runner = HostedRunner(app, 1, settings)
    read = pb.HostReply(source_read=pb.SourceRead(session=1))

    for _ in range(MAX_SOURCE_READS):
        runner.send_source_items(host, read)
    assert not app.replaced
    runner.send_source_items(host, read)
    runner.close()

    assert app.replaced == [host]
