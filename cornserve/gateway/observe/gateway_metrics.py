"""Prometheus metrics of a gateway.

Requests and chunks are counted in plain objects, which become metrics only when Prometheus scrapes them. This costs a
fraction of prometheus_client's own counters, and the series of deleted apps disappear.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from uuid import uuid4

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.app.arrivals import GatewayArrivals
from cornserve.app.settings import LatencyTargetSettings
from cornserve.gateway.observe.request_records import RequestRecords
from cornserve.gateway.observe.request_stats import AppStats, RequestStats
from cornserve_policies.path_table import CellPath

_PLANNED_PATH = ["app", "type", "cell", "path"]


class GatewayMetrics(Collector):
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._apps: dict[str, AppStats] = {}
        self.requests = RequestRecords()
        """The last, slow and failed requests."""
        self._errors: Counter[tuple[int, str]] = Counter()
        self._process = uuid4().hex
        self._started = time.monotonic()

    def new_request(self, app: str) -> RequestStats:
        """Returns the metrics of a new request. `app` must be deployed: it becomes a label."""
        return RequestStats(self._stats(app))

    def set_targets(self, app: str, targets: LatencyTargetSettings | None, *, logs_decisions: bool = False) -> None:
        """Sets the latency targets of an app's next requests, and whether decisions about them are logged."""
        if targets is not None or app in self._apps:
            self._stats(app).set_targets(targets, logs_decisions=logs_decisions)

    def retain_groups(self, app: str, groups: Set[str], options: Mapping[str, str]) -> None:
        """Removes the loads of all executor groups and executors of an app except these.

        Args:
            options: the deployment options of the app's plan, by the key of their executor.
        """
        if app in self._apps:
            self._apps[app].retain_groups(groups, options)

    def set_planned_shares(self, app: str, shares: Sequence[tuple[CellPath, float]]) -> None:
        """Sets the shares of an app's plan. They are empty without a plan."""
        if shares or app in self._apps:
            self._stats(app).planned_shares = shares

    def _stats(self, app: str) -> AppStats:
        stats = self._apps.get(app)
        if stats is None:
            stats = self._apps[app] = AppStats()
        return stats

    @property
    def apps(self) -> Mapping[str, AppStats]:
        """The sums over all requests to each app."""
        return self._apps

    @property
    def process(self) -> str:
        """An id of this gateway's process."""
        return self._process

    def moved_streams(self, app: str) -> int:
        """Returns the number of an app's streams that continued on another replica because theirs left."""
        return self._apps[app].moves if app in self._apps else 0

    def forget_app(self, app: str) -> None:
        """Removes the series and the requests of an app."""
        self._apps.pop(app, None)
        self.requests.forget_app(app)

    def arrivals(self) -> GatewayArrivals:
        """Returns the requests by type of all apps with a plan, the loads of all executor groups, and the requests that
        have met and missed latency targets."""
        return GatewayArrivals(
            process=self._process,
            seconds=time.monotonic() - self._started,
            apps={app: dict(stats.arrivals) for app, stats in self._apps.items() if stats.arrivals},
            invocations={app: dict(stats.invocations) for app, stats in self._apps.items() if stats.invocations},
            type_invocations={app: found for app, stats in self._apps.items() if (found := stats.option_invocations)},
            tokens={app: dict(stats.input_tokens) for app, stats in self._apps.items() if stats.invocations},
            met={app: stats.met_targets for app, stats in self._apps.items() if stats.targets is not None},
            late_us={app: dict(late) for app, stats in self._apps.items() if (late := stats.stage_times.late_us)},
            missed={app: stats.missed_targets for app, stats in self._apps.items() if stats.targets is not None},
        )

    def record_error(self, status: int, code: str | None) -> None:
        """Counts an error response."""
        self._errors[status, code or ""] += 1

    def collect(self) -> Iterator[Metric]:
        yield from self._app_metrics()
        errors = CounterMetricFamily(
            "cornserve_gateway_error_responses",
            "Error responses, including those to unknown apps, by HTTP status and OpenAI error code.",
            labels=["status", "code"],
        )
        for (status, code), count in self._errors.items():
            errors.add_metric([str(status), code], count)
        yield errors

    def _app_metrics(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("cornserve_gateway_requests_running", "Requests being served.", labels=["app"])
        requests = _counter("requests", "Requests, by HTTP status. 499: the client disconnected.", ["app", "status"])
        paths = _counter("path_requests", "Requests, by the path drawn for them.", ["app", "path"])
        planned_paths = _counter(
            "planned_path_requests", "Requests of apps with a plan, by type, cell and path.", _PLANNED_PATH
        )
        type_invocations = _counter(
            "type_invocations",
            "Invocations of requests of apps with a plan, by type and deployment option.",
            ["app", "type", "option"],
        )
        unknown_types = _counter("unknown_type_requests", "Requests whose type the app's plan does not have.", ["app"])
        edges = _counter(
            "edge_invocations",
            "Invocations by the executor group of a producer whose output they read. Without one, it is empty.",
            ["app", "source", "target"],
        )
        shares = GaugeMetricFamily(
            "cornserve_gateway_planned_share",
            "Share of the requests of a type that a path in a cell is planned to receive.",
            labels=_PLANNED_PATH,
        )
        targets = _counter(
            "target_requests",
            "Requests by latency target, and whether they have met it.",
            ["app", "type", "target", "met"],
        )
        refusals = _counter(
            "refused_requests",
            "Requests refused early, by the target that they were not expected to meet.",
            ["app", "target"],
        )
        retries = _counter("retries", "Invocations retried on another replica.", ["app"])
        moves = _counter("moved_streams", "Responses that continued on another replica because theirs left.", ["app"])
        code = _counter("app_code_seconds", "Time for which the app's code ran: tasks and stream functions.", ["app"])
        late = _counter(
            "late_seconds",
            "Time that requests with a missed latency target took longer in a stage than others.",
            ["app", "group"],
        )
        compute = _counter(
            "compute_seconds",
            "Time of replicas that invocations took. Invocations that compute at the same time divide it.",
            ["app", "group"],
        )
        prompt = _counter("prompt_tokens", "Prompt tokens processed by language models.", ["app"])
        generation = _counter("generation_tokens", "Tokens generated by language models.", ["app"])
        media = _counter("media", "Images, audio and videos in requests.", ["app", "modality"])
        media_seconds = _histogram(
            "media_load_seconds", "Time from a request's arrival until its media are decoded or fetched.", ["app"]
        )
        seconds = _histogram(
            "e2e_request_latency_seconds", "Time from a request's arrival to the end of its response.", ["app"]
        )
        first_chunk = _histogram(
            "time_to_first_token_seconds",
            "TTFT: time from a request's arrival to the first chunk of a streamed response.",
            ["app"],
        )
        first_audio = _histogram(
            "time_to_first_audio_seconds",
            "Time from a request's arrival to the first audio of a streamed response.",
            ["app"],
        )
        chunk = _histogram(
            "inter_token_latency_seconds", "TBT: time between two chunks of a streamed response.", ["app"]
        )
        for app, stats in self._apps.items():
            running.add_metric([app], stats.running)
            for status, count in stats.statuses.items():
                requests.add_metric([app, str(status)], count)
            for path, count in stats.paths.items():
                paths.add_metric([app, str(path)], count)
            for planned, count in stats.planned_paths.items():
                planned_paths.add_metric(_labels(app, planned), count)
            for kind, counts in stats.option_invocations.items():
                for option, count in counts.items():
                    type_invocations.add_metric([app, kind, option], count)
            for edge, count in stats.edges.items():
                edges.add_metric([app, *edge], count)
            for planned, share in stats.planned_shares:
                shares.add_metric(_labels(app, planned), share)
            if stats.planned_shares or stats.unknown_types:
                unknown_types.add_metric([app], stats.unknown_types)
            for result, count in stats.target_results.items():
                targets.add_metric([app, result.request_type, result.target, str(result.is_met).lower()], count)
            for target, count in stats.refusals.items():
                refusals.add_metric([app, target], count)
            retries.add_metric([app], stats.retries)
            moves.add_metric([app], stats.moves)
            code.add_metric([app], stats.run_seconds)
            for group, late_us in stats.stage_times.late_us.items():
                late.add_metric([app, group], late_us / 1e6)
            for group, spent in stats.compute_seconds.items():
                compute.add_metric([app, group], spent)
            prompt.add_metric([app], stats.prompt_tokens)
            generation.add_metric([app], stats.generation_tokens)
            for modality, count in stats.media.items():
                media.add_metric([app, modality], count)
            stats.media_seconds.add_to(media_seconds, [app])
            stats.seconds.add_to(seconds, [app])
            stats.first_chunk_seconds.add_to(first_chunk, [app])
            stats.first_audio_seconds.add_to(first_audio, [app])
            stats.chunk_seconds.add_to(chunk, [app])
        tokens, times = (prompt, generation), (media_seconds, seconds, first_chunk, first_audio, chunk)
        plan = (planned_paths, shares, type_invocations, edges, unknown_types)
        outcomes = (targets, refusals, retries, moves, code, late, compute)
        yield from (running, requests, paths, *plan, *outcomes, *tokens, media, *times)


def _labels(app: str, planned: CellPath) -> list[str]:
    return [app, planned.request_type, planned.cell, str(planned.path)]


def _counter(name: str, description: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"cornserve_gateway_{name}", description, labels=labels)


def _histogram(name: str, description: str, labels: list[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"cornserve_gateway_{name}", description, labels=labels)
