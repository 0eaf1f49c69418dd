"""The counts of an app as one flat counter, which can be subtracted, added, and sent to another gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cornserve.gateway.observe.request_stats import AppStats
from cornserve.observe.histogram import Histogram, quantile

Key = tuple[str, ...]
"""The name of a count, with its labels."""

Counts = Mapping[Key, int]

NO_COUNTS: Counts = {}

LATENCIES = ("ttft", "tbt", "e2e")

FIRST_ERROR = 500
"""Statuses from this one on are errors of the server."""


def app_counts(stats: AppStats) -> Counts:
    """Returns the counts of an app that are not zero."""
    counts: dict[Key, int] = {("prompt",): stats.prompt_tokens, ("generation",): stats.generation_tokens}
    counts |= {("status", str(status)): count for status, count in stats.statuses.items()}
    counts |= {("path", str(path)): count for path, count in stats.paths.items()}
    counts |= {
        ("planned", planned.request_type, planned.cell, str(planned.path)): count
        for planned, count in stats.planned_paths.items()
    }
    counts |= {("type", kind): count for kind, count in stats.arrivals.items()}
    counts |= {("met", target): count for target, count in stats.met_targets.items()}
    counts |= {("missed", target): count for target, count in stats.missed_targets.items()}
    counts |= {("group", group): count for group, count in stats.invocations.items()}
    counts |= {("tokens", group): count for group, count in stats.input_tokens.items()}
    counts |= {("edge", *edge): count for edge, count in stats.edges.items()}
    histograms = zip(LATENCIES, (stats.first_chunk_seconds, stats.chunk_seconds, stats.seconds), strict=True)
    for name, histogram in histograms:
        counts |= bucket_counts(name, histogram)
    return {key: count for key, count in counts.items() if count}


def bucket_counts(name: str, histogram: Histogram) -> dict[Key, int]:
    return {(name, str(bucket)): count for bucket, count in enumerate(histogram.counts) if count}


def added(counts: Counts, others: Counts) -> Counts:
    sums = Counter(dict(counts))
    sums.update(others)
    return sums


def increase(before: Counts, now: Counts) -> Counts:
    """Returns the growth of counts. A count that is smaller than before began again from zero."""
    if now is before:
        return NO_COUNTS
    grown = ((key, count, before.get(key, 0)) for key, count in now.items())
    return {key: count - last if count >= last else count for key, count, last in grown if count != last}


def select(counts: Counts, name: str) -> dict[Key, int]:
    """Returns the counts of one name by their labels."""
    return {key[1:]: count for key, count in counts.items() if key[0] == name}


def errors(counts: Counts) -> int:
    return sum(count for key, count in counts.items() if key[0] == "status" and int(key[1]) >= FIRST_ERROR)


def requests(counts: Counts) -> int:
    """Returns the number of ended requests."""
    return sum(count for key, count in counts.items() if key[0] == "status")


def percentile(counts: Counts, name: str, share: float) -> float | None:
    """Returns a percentile in seconds, or None without an observation."""
    return quantile({int(key[1]): count for key, count in counts.items() if key[0] == name}, share)
