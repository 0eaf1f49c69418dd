"""Tensors for tests of pullers, in memory that is not reused."""

from __future__ import annotations

from collections.abc import Callable

from cornserve.transport.pull.puller import PullSource


def pull_source(data: bytes | memoryview, is_current: Callable[[], bool] = lambda: True) -> PullSource:
    return PullSource(memoryview(data), is_current, lambda: lambda: None)
