"""The settings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel

from cornserve.bench import requests
from cornserve.bench.load_generator import LoadShape
from cornserve.bench.requests import RequestSource
from cornserve.bench.slo import Slo

CONCURRENCY = 8
REQUESTS = 100
PROMPT_WORDS = 50


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
        self._check_exclusive("prompt", "prompt_words", "dataset", "request")
        if self._has_none_of("concurrency", "rate"):
            self.concurrency = CONCURRENCY
        if self._has_none_of("requests", "duration"):
            self.requests = REQUESTS
        if self._has_none_of("prompt", "prompt_words", "dataset", "request"):
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
        """Returns the source of the requests. Raises `RequestError` if they cannot be read."""
        return RequestSource(self.app, self._bodies(), self.request is None, self.stream, self.timeout)

    def _bodies(self) -> Iterator[Any]:
        chat_options = {"max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos}
        options = {name: value for name, value in chat_options.items() if value}
        if self.request is not None:
            return requests.app_requests(self.request)
        if self.dataset is not None:
            return requests.dataset(self.dataset, options)
        if self.prompt is not None:
            return requests.prompts(self.prompt, options)
        return requests.random_prompts(self.prompt_words or PROMPT_WORDS, options, Random(self.seed))

    def _check_exclusive(self, *names: str) -> None:
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise BenchSettingsError(f"{' and '.join(given)} exclude each other: set only one")

    def _has_none_of(self, *names: str) -> bool:
        return all(getattr(self, name) is None for name in names)
