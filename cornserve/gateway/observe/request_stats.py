"""Measurements of one request, and their sums over all requests to an app."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

from cornserve.app.arrivals import UNPLANNED_TYPE
from cornserve.app.overview import RequestSpan
from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.latency_targets import AppTargets, RequestTargets, TargetResult
from cornserve.gateway.observe.request_spans import MAX_SPANS, AttemptSpan, GatewaySpan
from cornserve.gateway.observe.stage_times import stage_seconds
from cornserve.observe.histogram import Histogram
from cornserve_policies.admission import LatencyTarget, Refusal
from cornserve_policies.late_stages import StageTimes
from cornserve_policies.path_table import CellPath
from cornserve_tasklib.chat_response import Usage


@dataclass(slots=True)
class AppStats:
    """Sums over all requests to one app."""

    running: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    paths: Counter[int] = field(default_factory=Counter)
    planned_paths: Counter[CellPath] = field(default_factory=Counter)
    """Requests that were routed by a plan."""
    arrivals: Counter[str] = field(default_factory=Counter)
    """Requests by type, with `UNPLANNED_TYPE` for those of no type of the plan."""
    invocations: Counter[str] = field(default_factory=Counter)
    """Started invocations by executor group, without retries."""
    type_invocations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Invocations of requests that were routed by a plan, by type and executor."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The deployment options of the plan, by the key of their executor."""
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Started invocations by the executor groups of a producer and of the invocation. Without producers, the first one
    is empty: the gateway."""
    input_tokens: Counter[str] = field(default_factory=Counter)
    """Tokens of the inputs of these invocations, as far as tasks know them, by executor group."""
    planned_shares: Sequence[tuple[CellPath, float]] = ()
    targets: AppTargets | None = None
    target_results: Counter[TargetResult] = field(default_factory=Counter)
    stage_times: StageTimes = field(default_factory=StageTimes)
    """The times of the stages of requests with targets."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Requests that were refused early, by the target that they were not expected to meet."""
    retries: int = 0
    moves: int = 0
    """Streams that continued on another replica because theirs left."""
    run_seconds: float = 0.0
    compute_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Time of replicas that invocations took, by executor group."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    media: Counter[str] = field(default_factory=Counter)
    """Media in requests, by modality."""
    media_seconds: Histogram = field(default_factory=Histogram)
    seconds: Histogram = field(default_factory=Histogram)
    first_chunk_seconds: Histogram = field(default_factory=Histogram)
    first_audio_seconds: Histogram = field(default_factory=Histogram)
    chunk_seconds: Histogram = field(default_factory=Histogram)

    @property
    def unknown_types(self) -> int:
        """Requests whose components are those of no type of the plan."""
        return self.arrivals[UNPLANNED_TYPE]

    @property
    def met_targets(self) -> dict[str, int]:
        """The requests that have met each target."""
        return self._results(is_met=True)

    @property
    def missed_targets(self) -> dict[str, int]:
        """The requests that have missed each target, or were refused by it."""
        return dict(Counter(self._results(is_met=False)) + self.refusals)

    def _results(self, *, is_met: bool) -> dict[str, int]:
        counts = Counter[str]()
        for result, count in self.target_results.items():
            if result.is_met is is_met:
                counts[result.target] += count
        return dict(counts)

    @property
    def option_invocations(self) -> dict[str, dict[str, int]]:
        """The invocations of requests that were routed by a plan, by type and deployment option."""
        found: dict[str, dict[str, int]] = {}
        for (kind, executor), count in self.type_invocations.items():
            if executor in self.options:
                found.setdefault(kind, {})[self.options[executor]] = count
        return found

    def retain_groups(self, groups: Set[str], options: Mapping[str, str]) -> None:
        """Removes the loads of all other executor groups, and the invocations of all other executors.

        Args:
            options: the deployment options of the plan, by the key of their executor.
        """
        self.options = options
        for group in self.invocations.keys() - groups:
            del self.invocations[group], self.input_tokens[group]
        for group in self.compute_seconds.keys() - groups:
            del self.compute_seconds[group]
        self.stage_times.retain_groups(groups)
        if self.targets is not None:
            self.targets.retain_groups(groups)
        for edge in [edge for edge in self.edges if not {*edge} - {""} <= groups]:
            del self.edges[edge]
        for key in [key for key in self.type_invocations if key[1] not in options]:
            del self.type_invocations[key]

    def set_targets(self, settings: LatencyTargetSettings | None, *, logs_decisions: bool = False) -> None:
        """Sets the targets of the next requests. Other targets begin without observations."""
        if settings is None:
            self.targets = None
            return
        if self.targets is None or self.targets.settings != settings:
            self.targets = AppTargets(settings)
            self.refusals.update(dict.fromkeys(self.targets.refusing, 0))
        self.targets.logs_decisions = logs_decisions


class RequestStats:
    """Measures one request."""

    __slots__ = (
        "_app",
        "_group_tokens",
        "_has_audio",
        "_last_chunk_at",
        "_request_type",
        "_spans",
        "_started",
        "_targets",
        "first_chunk_seconds",
        "generation_tokens",
        "group_seconds",
        "path",
        "prompt_tokens",
        "retries",
    )

    def __init__(self, app: AppStats) -> None:
        self._app = app
        self._started = time.perf_counter()
        self._last_chunk_at = 0.0
        self._group_tokens: dict[str, int] = {}
        self._has_audio = False
        self._request_type = ""
        self._targets: RequestTargets | None = None
        self._spans: list[AttemptSpan | GatewaySpan] = []
        self.path: int | None = None
        self.retries = 0
        self.group_seconds: dict[str, float] = {}
        """Time of replicas that the request's invocations took, by executor group."""
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.first_chunk_seconds: float | None = None
        """Seconds from the request's arrival to the first chunk of a streamed response."""

    @property
    def seconds(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self._started

    @property
    def compute_seconds(self) -> float:
        """Time of replicas that the request's invocations took."""
        return sum(self.group_seconds.values())

    @property
    def spans(self) -> list[RequestSpan]:
        """The parts of the request, in the order of their starts, as far as they are kept."""
        return [span.span() for span in self._spans]

    def begin_attempt(
        self, name: str, group: str, replica: str, *, index: int, attempt: int, after: Sequence[int], queued: float
    ) -> AttemptSpan | None:
        """Starts the span of an attempt of an invocation. None: the request has too many."""
        if len(self._spans) >= MAX_SPANS:
            return None
        span = AttemptSpan(
            self._started, name, group, replica, index=index, attempt=attempt, after=after, queued=queued
        )
        self._spans.append(span)
        return span

    def _add_span(self, kind: Literal["media", "run"], name: str, start: float) -> None:
        if len(self._spans) < MAX_SPANS:
            self._spans.append(GatewaySpan(kind, name, start, self.seconds))

    def admit(self, *, streams: bool) -> Refusal | None:
        """Counts the request as running, unless the targets of the app refuse it.

        Args:
            streams: whether the response is streamed.
        """
        if self._app.targets is not None:
            admitted = self._app.targets.admit(streams=streams)
            if isinstance(admitted, Refusal):
                self._app.refusals[admitted.target] += 1
                return admitted
            self._targets = admitted
        self._app.running += 1
        return None

    def record_path(self, path: int, planned: CellPath | None = None, *, is_known: bool = True) -> None:
        """Counts the path.

        Args:
            planned: the type, the cell and the path, if a plan has led to them.
            is_known: whether the plan has the request's type.
        """
        if self.path is None:  # a second session of the same request draws the same path
            self.path = path
            self._app.paths[path] += 1
            if planned is not None:
                self._request_type = planned.request_type
                self._app.planned_paths[planned] += 1
                self._app.arrivals[planned.request_type if is_known else UNPLANNED_TYPE] += 1

    def record_run(self, seconds: float) -> None:
        """Counts the time for which the app's code has run."""
        self._app.run_seconds += seconds
        self._add_span("run", "task", max(0.0, self.seconds - seconds))

    def record_invocation(self, group: str, executor: str, tokens: int) -> None:
        """Counts a new invocation for an executor group.

        Args:
            executor: the key of the executor.
        """
        self._app.invocations[group] += 1
        if self._request_type:
            self._app.type_invocations[self._request_type, executor] += 1
        self._app.input_tokens[group] += tokens

    def due_us(self, group: str, arrived_us: int, tokens: int) -> int:
        """Returns when a new invocation for an executor group is due, in microseconds since 1970.

        0: the app has no target for it. Inputs that the request has sent to the group before add to its size.
        """
        targets = self._app.targets
        if targets is None:
            return 0
        sent = self._group_tokens[group] = self._group_tokens.get(group, 0) + tokens
        return targets.due_us(group, arrived_us, sent)

    def record_compute_time(self, group: str, seconds: float) -> None:
        """Adds the time of a replica of an executor group that an invocation took."""
        self.group_seconds[group] = self.group_seconds.get(group, 0.0) + seconds
        self._app.compute_seconds[group] += seconds

    def record_edges(self, producers: Iterable[str], group: str) -> None:
        """Counts a new invocation by the executor groups whose outputs it reads."""
        for producer in set(producers) or ("",):
            self._app.edges[producer, group] += 1

    def record_retry(self) -> None:
        """Counts another attempt of an invocation."""
        self.retries += 1
        self._app.retries += 1

    def record_move(self) -> None:
        """Counts a stream that continues on another replica because its replica leaves."""
        self._app.moves += 1

    def record_media(self, modalities: Iterable[str]) -> None:
        """Counts the request's media, once all are decoded from base64 or fetched."""
        self._app.media.update(modalities)
        self._app.media_seconds.observe(self.seconds)
        self._add_span("media", "media", 0.0)

    def record_chunk(self) -> None:
        """Times a chunk of a streamed response."""
        now = time.perf_counter()
        if self.first_chunk_seconds is None:
            self.first_chunk_seconds = now - self._started
            self._app.first_chunk_seconds.observe(self.first_chunk_seconds)
            if self._targets is not None:
                self._targets.record_first_chunk(self.first_chunk_seconds)
        else:
            gap = now - self._last_chunk_at
            self._app.chunk_seconds.observe(gap)
            if self._targets is not None:
                self._targets.record_gap(gap)
        self._last_chunk_at = now

    def record_audio(self) -> None:
        """Times the first audio of a streamed response."""
        if not self._has_audio:
            self._has_audio = True
            self._app.first_audio_seconds.observe(self.seconds)

    def record_usage(self, usage: object) -> None:
        """Counts the tokens that a completed invocation's output reports, if it reports any."""
        if usage is not None and isinstance(usage, Usage):  # The check of another type is slow.
            self.prompt_tokens += usage.prompt_tokens
            self.generation_tokens += usage.completion_tokens
            self._app.prompt_tokens += usage.prompt_tokens
            self._app.generation_tokens += usage.completion_tokens

    def record_end(self, status: int) -> None:
        self._app.running -= 1
        self._app.statuses[status] += 1
        seconds = self.seconds
        self._app.seconds.observe(seconds)
        if self._targets is not None:
            results = self._targets.record_end(status, seconds)
            for target, is_met in results:
                self._app.target_results[TargetResult(self._request_type, target, is_met)] += 1
            if results:
                self._add_stage_times(seconds, dict(results))

    def _add_stage_times(self, seconds: float, results: dict[LatencyTarget, bool]) -> None:
        """Adds the stages until the first chunk with the result of the TTFT, and those until the end with the others.

        Without a chunk, the TTFT lasts until the end.
        """
        attempts = [span for span in self._spans if isinstance(span, AttemptSpan)]
        times, first = self._app.stage_times, self.first_chunk_seconds
        if first is not None and "ttft" in results:
            stages = stage_seconds(attempts, first, to_first_output=True)
            times.add(stages, to_first_output=True, is_met=results.pop("ttft"))
        if results:
            stages = stage_seconds(attempts, seconds, to_first_output=False)
            times.add(stages, to_first_output=False, is_met=all(results.values()))
