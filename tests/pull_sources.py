"""Memory for tests of pullers, which is not reused."""

from __future__ import annotations

from collections.abc import Callable

from cornserve.transport.pull.puller import PullSource, PullTarget


def pull_source(data: bytes | memoryview, is_current: Callable[[], bool] = lambda: True) -> PullSource:
    return PullSource(memoryview(data), is_current, lambda: lambda: None)


def pull_target(memory: bytearray | memoryview) -> PullTarget:
    return PullTarget(memoryview(memory), lambda: lambda: None)
