"""The table of results at the end of `make chaos`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pytest

PROPERTY = "fault"
"""The name of the property of a test report that carries a `FaultResult`."""

HEADER = ("Fault", "Count", "Requests", "Outcome", "p99 ms", "Leaks", "Seconds")


@dataclass(frozen=True, slots=True)
class FaultResult:
    fault: str
    count: int
    """The number of times that the fault occurred."""
    requests: int | None = None
    outcome: str = "as required"
    """The responses and errors of the requests, or what happened instead."""
    p99_ms: float | None = None
    leaks: int | None = None
    """The number of leaked processes, ports, files and bytes, if the test counts them."""


class FaultRecorder:
    """Adds rows to the table. Each test report carries its rows, also from an xdist worker."""

    def __init__(self, properties: list[tuple[str, Any]]) -> None:
        self._properties = properties

    def __call__(self, result: FaultResult) -> None:
        self._properties.append((PROPERTY, asdict(result)))


def p99_ms(seconds: Iterable[float]) -> float:
    """Returns the 99th percentile of durations, in milliseconds: the smallest that 99 % do not exceed."""
    ordered = sorted(seconds)
    return 1000 * ordered[math.ceil(0.99 * len(ordered)) - 1]


def table(reports: Sequence[pytest.TestReport]) -> list[str]:
    """Returns the lines of the table. A test that recorded no row has one with its name."""
    rows = [HEADER, *(row for report in sorted(reports, key=_place) for row in _rows(report))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _place(report: pytest.TestReport) -> str:
    return report.nodeid


def _rows(report: pytest.TestReport) -> Iterator[tuple[str, ...]]:
    properties: list[tuple[str, Any]] = report.user_properties
    results = [FaultResult(**value) for name, value in properties if name == PROPERTY]
    if not results or report.failed:
        name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        results.append(FaultResult(name, 1, outcome="FAILED" if report.failed else "as required"))
    for result in results:
        yield (
            result.fault,
            f"{result.count:,}",
            _number(result.requests),
            result.outcome,
            _number(result.p99_ms),
            _number(result.leaks),
            f"{report.duration:.0f}",
        )


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
