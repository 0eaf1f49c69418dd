"""A run from its first warm-up request to its last answer, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cornserve.bench.exchange import Exchanges
from cornserve.bench.load import Load
from cornserve.bench.requests import Requests
from cornserve.bench.samples import Sample
from cornserve.bench.settings import Settings
from cornserve.client.address import GatewayAddress

Watching = Callable[[Load], Awaitable[None]]
"""Shows a load while it runs; is cancelled at its end."""


class WarmUpError(Exception):
    """The app did not answer: there is nothing to measure."""


async def run(address: GatewayAddress, requests: Requests, settings: Settings, watch: Watching) -> Load:
    """Raises `WarmUpError` before any load is made."""
    async with Exchanges(address) as exchanges:
        await _warm_up(exchanges, requests, settings.warmup)
        load = Load(settings.shape, requests, exchanges, settings.seed)
        async with _stopped_by_ctrl_c(load), _watched(load, watch):
            await load.run()
        return load


async def _warm_up(exchanges: Exchanges, requests: Requests, count: int) -> None:
    """One after the other. The first answer is worth waiting for: it says whether the requests fit the app."""
    for _ in range(count):
        now = time.perf_counter()
        sample = Sample(now, now)
        await exchanges.run(next(requests), sample)
        if sample.error is not None:
            raise WarmUpError(f"{requests.app} did not answer the warm-up: {sample.reason or sample.error}")


@asynccontextmanager
async def _stopped_by_ctrl_c(load: Load) -> AsyncIterator[None]:
    """The second one ends the process as ever."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        load.stop()

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@asynccontextmanager
async def _watched(load: Load, watch: Watching) -> AsyncIterator[None]:
    watching = asyncio.ensure_future(watch(load))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
