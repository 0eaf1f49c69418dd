"""What is counted of the requests to an app, and of one of them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from cornserve.observe.histogram import Histogram
from cornserve.task.output import Output
from cornserve_tasklib.response import Usage

if TYPE_CHECKING:
    from cornserve.gateway.observe.trace import Trace


class AppTally:
    """What has become of the requests to one app."""

    __slots__ = (
        "chunk_seconds",
        "first_seconds",
        "generation_tokens",
        "image_seconds",
        "images",
        "paths",
        "prompt_tokens",
        "retries",
        "running",
        "seconds",
        "statuses",
    )

    def __init__(self) -> None:
        self.running = 0
        self.statuses: Counter[int] = Counter()
        self.paths: Counter[int] = Counter()
        self.retries = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.images = 0
        self.image_seconds = Histogram()
        self.seconds = Histogram()
        self.first_seconds = Histogram()
        self.chunk_seconds = Histogram()


class Meter:
    """Measures one request."""

    __slots__ = (
        "_last",
        "_started",
        "_tally",
        "first",
        "generation_tokens",
        "path",
        "prompt_tokens",
        "retries",
        "trace",
    )

    def __init__(self, tally: AppTally) -> None:
        self._tally = tally
        self._started = time.perf_counter()
        self._last = 0.0
        self.path: int | None = None
        self.retries = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.trace: Trace | None = None
        """Where requests are traced."""
        self.first: float | None = None
        """Seconds until the first piece of a streamed answer."""

    def begin(self) -> None:
        self._tally.running += 1

    @property
    def seconds(self) -> float:
        """How long the request takes so far."""
        return time.perf_counter() - self._started

    def take_path(self, path: int) -> None:
        if self.path is None:  # a second session of the request draws the same
            self.path = path
            self._tally.paths[path] += 1

    def retry(self) -> None:
        """An invocation starts once more, on another replica."""
        self.retries += 1
        self._tally.retries += 1

    def take_images(self, count: int) -> None:
        """Images of the request are there."""
        self._tally.images += count
        self._tally.image_seconds.observe(self.seconds)

    def chunk(self) -> None:
        """A piece of a streamed answer arrives."""
        now = time.perf_counter()
        if self.first is None:
            self.first = now - self._started
            self._tally.first_seconds.observe(self.first)
        else:
            self._tally.chunk_seconds.observe(now - self._last)
        self._last = now

    def take_usage(self, output: Output) -> None:
        """Of an invocation that has ended; what language models give says how many tokens it took."""
        usage = vars(output).get("usage")
        if isinstance(usage, Usage):
            self.prompt_tokens += usage.prompt_tokens
            self.generation_tokens += usage.completion_tokens
            self._tally.prompt_tokens += usage.prompt_tokens
            self._tally.generation_tokens += usage.completion_tokens

    def end(self, status: int) -> None:
        self._tally.running -= 1
        self._tally.statuses[status] += 1
        self._tally.seconds.observe(self.seconds)
