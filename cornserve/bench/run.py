"""Runs a measurement: warm-up, load, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cornserve.bench.load_generator import LoadGenerator
from cornserve.bench.requests import RequestSource
from cornserve.bench.settings import BenchSettings
from cornserve.bench.statistics import RequestSample
from cornserve.bench.timed_client import TimedClient
from cornserve.client.address import GatewayAddress

ProgressDisplay = Callable[[LoadGenerator], Awaitable[None]]
"""Shows a running load. It is cancelled when the load ends."""


_OPTIONS = {
    "/v1/images/generations": "--size or --steps",
    "/v1/audio/speech": "--speech",
    "/invoke": "--request",
}
"""The options that select other requests than chats, by a part of their paths."""


WARM_UP_RUN = -1
"""The number of the run whose contents warm-up requests have."""


class WarmUpError(Exception):
    """The app did not respond to the warm-up."""


async def run(
    address: GatewayAddress, requests: RequestSource, settings: BenchSettings, show_progress: ProgressDisplay
) -> LoadGenerator:
    """Sends the warm-up requests, then the load.

    With recorded times, the warm-up requests are those of another run: the requests of the load are complete.

    Raises `WarmUpError` if a warm-up request fails.
    """
    warm_up = settings.request_source(WARM_UP_RUN) if settings.recorded else requests
    shape = settings.shape()
    async with TimedClient(address) as client:
        await _warm_up(client, warm_up, settings.warmup)
        load = LoadGenerator(shape, requests, client, settings.seed)
        async with _stopped_by_ctrl_c(load), _shown(load, show_progress):
            await load.run()
        return load


async def _warm_up(client: TimedClient, requests: RequestSource, count: int) -> None:
    """Sends requests one after the other. The first response shows whether the requests are valid for the app."""
    for _ in range(count):
        now = time.perf_counter()
        sample = RequestSample(now, now)
        await client.run(next(requests).call, sample)
        if sample.error is not None:
            reason = sample.reason or sample.error
            raise WarmUpError(f"{requests.app} did not respond to the warm-up: {reason}{_suitable_option(reason)}")


def _suitable_option(reason: str) -> str:
    """Returns the options for the requests of an app, of which the gateway names the path in an error."""
    supported = reason.partition("call it with POST ")[2]
    return next((f": use {options}" for path, options in _OPTIONS.items() if path in supported), "")


@asynccontextmanager
async def _stopped_by_ctrl_c(load: LoadGenerator) -> AsyncIterator[None]:
    """Stops the load at the first Ctrl-C. The second Ctrl-C ends the process."""
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
async def _shown(load: LoadGenerator, show_progress: ProgressDisplay) -> AsyncIterator[None]:
    display = asyncio.ensure_future(show_progress(load))
    try:
        yield
    finally:
        display.cancel()
        await asyncio.gather(display, return_exceptions=True)
