"""Prometheus metrics of a gateway.

What is counted per request and per piece of an answer is counted in plain objects and becomes metrics when somebody
asks for them: this costs a fraction of prometheus_client's own counters, and what is no longer served disappears.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cornserve.gateway.observe.meter import AppTally, Meter


class Metrics(Collector):
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._apps: dict[str, AppTally] = {}
        self._errors: Counter[tuple[int, str]] = Counter()

    def meter(self, app: str) -> Meter:
        """A request to an app that is served: names that clients make up do not become labels."""
        tally = self._apps.get(app)
        if tally is None:
            tally = self._apps[app] = AppTally()
        return Meter(tally)

    def retain(self, apps: set[str]) -> None:
        """Forgets the other apps."""
        self._apps = {name: tally for name, tally in self._apps.items() if name in apps}

    def error(self, status: int, code: str | None) -> None:
        """An answer in the shape of an error."""
        self._errors[status, code or ""] += 1

    def collect(self) -> Iterator[Metric]:
        yield from self._of_apps()
        errors = CounterMetricFamily(
            "cornserve_gateway_error_responses",
            "Answers that are errors, also those that reach no app, by HTTP status and OpenAI's error code.",
            labels=["status", "code"],
        )
        for (status, code), count in self._errors.items():
            errors.add_metric([str(status), code], count)
        yield errors

    def _of_apps(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("cornserve_gateway_running", "Requests that are being served.", labels=["app"])
        requests = _counter("requests", "Requests, by HTTP status. 499: the client left.", ["app", "status"])
        paths = _counter("path_requests", "Requests, by the path that was drawn for them.", ["app", "path"])
        retries = _counter("retries", "Invocations that were started once more, on another replica.", ["app"])
        prompt = _counter("prompt_tokens", "Tokens that language models have read.", ["app"])
        generation = _counter("generation_tokens", "Tokens that language models have written.", ["app"])
        images = _counter("images", "Images in requests.", ["app"])
        image_seconds = _histogram(
            "image_seconds", "From a request's arrival until its images are decoded from base64, or fetched.", ["app"]
        )
        seconds = _histogram(
            "e2e_request_latency_seconds", "From a request's arrival to the end of its answer.", ["app"]
        )
        first = _histogram(
            "time_to_first_token_seconds",
            "TTFT: from a request's arrival to the first piece of a streamed answer.",
            ["app"],
        )
        between = _histogram(
            "inter_token_latency_seconds", "TBT: from one piece of a streamed answer to the next.", ["app"]
        )
        for app, tally in self._apps.items():
            running.add_metric([app], tally.running)
            for status, count in tally.statuses.items():
                requests.add_metric([app, str(status)], count)
            for path, count in tally.paths.items():
                paths.add_metric([app, str(path)], count)
            retries.add_metric([app], tally.retries)
            prompt.add_metric([app], tally.prompt_tokens)
            generation.add_metric([app], tally.generation_tokens)
            images.add_metric([app], tally.images)
            tally.image_seconds.add_to(image_seconds, [app])
            tally.seconds.add_to(seconds, [app])
            tally.first_seconds.add_to(first, [app])
            tally.chunk_seconds.add_to(between, [app])
        tokens, times = (prompt, generation), (image_seconds, seconds, first, between)
        yield from (running, requests, paths, retries, *tokens, images, *times)


def _counter(name: str, meaning: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"cornserve_gateway_{name}", meaning, labels=labels)


def _histogram(name: str, meaning: str, labels: list[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"cornserve_gateway_{name}", meaning, labels=labels)
