"""The settings of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel

from cornserve.bench import requests
from cornserve.bench.load_generator import LoadShape
from cornserve.bench.requests import RequestError, RequestSource
from cornserve.bench.slo import Slo

CONCURRENCY = 8
REQUESTS = 100
PROMPT_WORDS = 50

_REQUESTS = ("prompt", "prompt_words", "dataset", "workload", "request")
"""Names of settings that select the requests. They exclude each other."""


class BenchSettingsError(Exception):
    """The settings contradict each other."""


class BenchSettings(BaseModel):
    """The settings of a run. `None` means not set: the defaults above apply to each group of exclusive settings."""

    app: str
    concurrency: int | None = None
    rate: float | None = None
    burstiness: float = 1.0
    requests: int | None = None
    duration: float | None = None
    prompt: str | None = None
    prompt_words: int | None = None
    dataset: Path | None = None
    workload: Path | None = None
    request: Path | None = None
    max_tokens: int = 64
    ignore_eos: bool = False
    stream: bool = True
    warmup: int = 1
    seed: int = 0
    slo: str | None = None
    timeout: float = 120.0

    def model_post_init(self, context: Any, /) -> None:
        self._check_exclusive("concurrency", "rate")
        self._check_exclusive(*_REQUESTS)
        if self._has_none_of("concurrency", "rate"):
            self.concurrency = CONCURRENCY
        if self._has_none_of("requests", "duration"):
            self.requests = REQUESTS
        if self._has_none_of(*_REQUESTS):
            self.prompt_words = PROMPT_WORDS
        if (bounds := self.bounds) is not None and bounds.needs_stream and not self.stream:
            raise BenchSettingsError(f"--slo {self.slo} needs a stream: without a stream, set only e2e")

    @property
    def shape(self) -> LoadShape:
        return LoadShape(self.concurrency, self.rate, self.burstiness, self.requests, self.duration)

    @property
    def bounds(self) -> Slo | None:
        try:
            return None if self.slo is None else Slo.parse(self.slo)
        except ValueError as error:
            raise BenchSettingsError(f"--slo: {error}") from error

    def request_source(self) -> RequestSource:
        """Returns the source of the requests.

        Raises `RequestError`, and the planner's `PlannerError` for a workload, if they cannot be read.
        """
        return RequestSource(self.app, self._bodies(), self.request is None, self.stream, self.timeout)

    def _bodies(self) -> Iterator[Any]:
        chat_options = {"max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos}
        options = {name: value for name, value in chat_options.items() if value}
        if self.request is not None:
            return requests.app_requests(self.request)
        if self.dataset is not None:
            return requests.dataset(self.dataset, options)
        if self.workload is not None:
            return _workload(self.workload, options, Random(self.seed))
        if self.prompt is not None:
            return requests.prompts(self.prompt, options)
        return requests.random_prompts(self.prompt_words or PROMPT_WORDS, options, Random(self.seed))

    def _check_exclusive(self, *names: str) -> None:
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise BenchSettingsError(f"{' and '.join(given)} exclude each other: set only one")

    def _has_none_of(self, *names: str) -> bool:
        return all(getattr(self, name) is None for name in names)


def _workload(path: Path, options: Mapping[str, Any], random: Random) -> Iterator[Any]:
    """Returns the chats of a workload in turn, with new contents each time."""
    from cornserve.bench.workload_chats import workload_chats  # Imports the planner.

    chats = workload_chats(path)
    if not chats:
        raise RequestError(f"{path} contains no requests")
    return ({**options, **chat.body(random)} for chat in cycle(chats))
