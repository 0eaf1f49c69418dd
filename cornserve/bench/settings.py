"""The settings of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from cornserve.bench import requests
from cornserve.bench.load_generator import LoadShape
from cornserve.bench.recorded_arrivals import RecordedArrival
from cornserve.bench.requests import MakeBody, RequestError, RequestSource
from cornserve.bench.server_api import SERVERS, Operation, ServerApi, ServerName
from cornserve.bench.slo import Slo

if TYPE_CHECKING:  # It imports the planner.
    from cornserve.bench.workload_requests import SeededRequest

CONCURRENCY = 8
REQUESTS = 100
PROMPT_WORDS = 50

_OTHERS = ("dataset", "request")
"""Names of settings that select other requests than images and speech."""

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
    recorded: Literal[True] | None = None
    compare: Literal[True] | None = None
    server: ServerName = "cornserve"
    request: Path | None = None
    size: str | None = None
    steps: int | None = None
    speech: Literal[True] | None = None
    voice: str | None = None
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
        self._check_exclusive("recorded", "concurrency")
        if self.recorded and self.workload is None:
            raise BenchSettingsError("--recorded needs --workload, whose requests have times")
        if self._has_none_of("concurrency", "rate", "recorded"):
            self.concurrency = CONCURRENCY
        if self._has_none_of("requests", "duration", "recorded"):
            self.requests = REQUESTS
        if self._has_none_of(*_REQUESTS):
            self.prompt_words = PROMPT_WORDS
        for name in ("size", "steps", "speech", "voice"):
            for other in _OTHERS:
                self._check_exclusive(name, other)
        for name in ("speech", "voice"):
            self._check_exclusive(name, "size")
            self._check_exclusive(name, "steps")
        self._check_exclusive("speech", "workload")
        if self.workload is None and (missing := self.api.find_missing(self._operation)):
            raise BenchSettingsError(missing)
        if (bounds := self.bounds) is not None and bounds.needs_stream and not self.is_streamed:
            raise BenchSettingsError(f"--slo {self.slo} needs a stream: without a stream, set only e2e")

    @property
    def is_image(self) -> bool:
        """Whether the requests of a text are for images."""
        return self.size is not None or self.steps is not None

    @property
    def api(self) -> ServerApi:
        return SERVERS[self.server]

    @property
    def _operation(self) -> Operation:
        if self.request is not None:
            return "requests of an app"
        if self.is_image:
            return "images"
        if self.speech:
            return "texts to speak"
        return "chats with spoken responses" if self.is_spoken else "chats"

    @property
    def is_streamed(self) -> bool:
        return self.stream and not self.is_image

    def shape(self) -> LoadShape:
        """Returns the load. Raises `RequestError`, and the planner's `PlannerError`, if a workload cannot be read."""
        if self.recorded:
            return LoadShape(requests=self.requests, duration=self.duration, recorded=self.recorded_workload[1])
        return LoadShape(self.concurrency, self.rate, self.burstiness, self.requests, self.duration)

    @property
    def bounds(self) -> Slo | None:
        try:
            return None if self.slo is None else Slo.parse(self.slo)
        except ValueError as error:
            raise BenchSettingsError(f"--slo: {error}") from error

    @property
    def is_spoken(self) -> bool:
        """Whether chats of a text are answered in speech."""
        return self.voice is not None and not self.speech

    def request_source(self, run: int = 0) -> RequestSource:
        """Returns the source of the requests.

        Args:
            run: contents of the same sizes differ between runs, so that no cache has them.

        Raises `RequestError`, and the planner's `PlannerError` for a workload, if they cannot be read.
        """
        bodies = self._bodies(run)
        return RequestSource(self.app, bodies, self.request is not None, self.stream, self.timeout, self.api)

    def _bodies(self, run: int) -> Iterator[Any]:
        if self.request is not None:
            return requests.app_requests(self.request)
        if self.dataset is not None:
            return requests.dataset(self.dataset, self._chat_options)
        if self.workload is not None:
            return self._workload_bodies(self.workload, run)
        make_body = self._make_body()
        if self.prompt is not None:
            return requests.prompts(self.prompt, make_body)
        return requests.random_prompts(self.prompt_words or PROMPT_WORDS, make_body, _random(self.seed, run))

    def _make_body(self) -> MakeBody:
        if self.is_image:
            return partial(requests.image_body, options=self._image_options)
        if self.speech:
            return partial(requests.speech_body, options=self._speech_options)
        spoken = self._spoken_options if self.is_spoken else {}
        return partial(requests.chat_body, options={**self._chat_options, **spoken})

    def _workload_bodies(self, path: Path, run: int) -> Iterator[Any]:
        """Returns the requests of a workload in turn, with new contents each time.

        The options of images take precedence over the workload. At recorded times, contents are those of the seeds.
        """
        from cornserve.bench.workload_requests import SeededRequest, workload_requests  # Imports the planner.

        if self.recorded:
            requests, _ = self.recorded_workload
        else:
            count = None if self.requests is None else self.requests + self.warmup
            requests = [SeededRequest(each, None) for each in workload_requests(path, count)]
        if not requests:
            raise RequestError(f"{path} contains no requests")
        operations = {each.request.operation for each in requests}
        for operation in sorted(operations):
            if missing := self.api.find_missing(operation):
                raise RequestError(f"{path}: {missing}")
        if self.voice is None and "chats with spoken responses" in operations:
            raise RequestError(
                f"{path} contains chats with spoken responses: give one of the model's voices with --voice"
            )
        random = _random(self.seed, run)
        return (
            self._with_options(each.request.body(random if each.seed is None else _random(each.seed, run)))
            for each in cycle(requests)
        )

    @cached_property
    def recorded_workload(self) -> tuple[list[SeededRequest], list[RecordedArrival]]:
        """The requests of a workload, and their arrivals."""
        from cornserve.bench.workload_requests import recorded_requests  # Imports the planner.

        assert self.workload is not None
        return recorded_requests(self.workload, self.requests, self.rate)

    def _with_options(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body of a workload's request with the options of its operation."""
        if "prompt" in body:
            return {**body, **self._image_options}
        if "input" in body:
            return {**self._speech_options, **body}
        spoken = self._spoken_options if "modalities" in body else {}
        return {**self._chat_options, **spoken, **body}

    @property
    def _spoken_options(self) -> dict[str, Any]:
        return {"modalities": ["text", "audio"], "audio": {"voice": self.voice, "format": "pcm16"}}

    @property
    def _speech_options(self) -> dict[str, Any]:
        return {"response_format": "pcm", **({} if self.voice is None else {"voice": self.voice})}

    @property
    def _chat_options(self) -> dict[str, Any]:
        options = {"max_tokens": self.max_tokens, "ignore_eos": self.ignore_eos}
        return {name: value for name, value in options.items() if value}

    @property
    def _image_options(self) -> dict[str, Any]:
        options = {"size": self.size, "num_inference_steps": self.steps}
        return {name: value for name, value in options.items() if value is not None}

    def _check_exclusive(self, *names: str) -> None:
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]
        if len(given) > 1:
            raise BenchSettingsError(f"{' and '.join(given)} exclude each other: set only one")

    def _has_none_of(self, *names: str) -> bool:
        return all(getattr(self, name) is None for name in names)


def _random(seed: int, run: int) -> Random:
    return Random(f"{seed}/{run}" if run else seed)
