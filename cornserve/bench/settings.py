"""What is to be measured, as it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel

from cornserve.bench import requests
from cornserve.bench.load import Shape
from cornserve.bench.requests import Requests
from cornserve.bench.slo import Slo

CONCURRENCY = 8
REQUESTS = 100
PROMPT_WORDS = 50


class SettingsError(Exception):
    """The settings do not go together."""


class Settings(BaseModel):
    """`None`: not given. Of what excludes one another, the defaults above stand in for what is given nothing of."""

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
        self._exclude("concurrency", "rate")
        self._exclude("prompt", "prompt_words", "dataset", "request")
        if self._is_without("concurrency", "rate"):
            self.concurrency = CONCURRENCY
        if self._is_without("requests", "duration"):
            self.requests = REQUESTS
        if self._is_without("prompt", "prompt_words", "dataset", "request"):
            self.prompt_words = PROMPT_WORDS
        if (bounds := self.bounds) is not None and bounds.needs_stream and not self.stream:
            raise SettingsError(f"--slo {self.slo} needs a stream: without one, only e2e is known")

    @property
    def shape(self) -> Shape:
        return Shape(self.concurrency, self.rate, self.burstiness, self.requests, self.duration)

    @property
    def bounds(self) -> Slo | None:
        try:
            return None if self.slo is None else Slo.parse(self.slo)
        except ValueError as error:
            raise SettingsError(f"--slo: {error}") from error

    def work(self) -> Requests:
        """Raises `RequestError` if what is to be sent cannot be read."""
        return Requests(self.app, self._bodies(), self.request is None, self.stream, self.timeout)

    def _bodies(self) -> Iterator[Any]:
        wanted = {"max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos}
        options = {name: value for name, value in wanted.items() if value}
        if self.request is not None:
            return requests.own(self.request)
        if self.dataset is not None:
            return requests.dataset(self.dataset, options)
        if self.prompt is not None:
            return requests.prompts(self.prompt, options)
        return requests.random_prompts(self.prompt_words or PROMPT_WORDS, options, Random(self.seed))

    def _exclude(self, *names: str) -> None:
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} exclude each other")

    def _is_without(self, *names: str) -> bool:
        return all(getattr(self, name) is None for name in names)
