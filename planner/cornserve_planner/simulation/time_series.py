"""A simulation over time: latencies and rates in windows, and the GPUs of the running cells."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from cornserve_planner.drawing.plot import TimeChart
from cornserve_planner.simulation.simulation_result import SimulationResult

WINDOWS = 80

Points = list[tuple[float, float]]


def time_charts(result: SimulationResult) -> list[TimeChart]:
    """Returns the charts of a simulation with at least one completed request."""
    columns = [of_type["e2e"] for of_type in result.measurements.latencies.values()]
    arrivals = np.concatenate([np.frombuffer(each.arrivals) for each in columns])
    seconds = np.concatenate([np.frombuffer(each.seconds) for each in columns])
    edges = np.linspace(0.0, result.measurements.end, WINDOWS + 1)
    charts = [
        TimeChart("Complete responses, by arrival", "seconds", _percentiles(arrivals, seconds, edges)),
        TimeChart(
            "Completed requests",
            "requests/s",
            {"by arrival": _rates(arrivals, edges), "by end": _rates(arrivals + seconds, edges)},
        ),
    ]
    if result.simulation.adaptation is not None:
        charts.append(TimeChart("GPUs of all cells", "GPUs", {"from start to end": _gpus(result)}))
    return charts


def _percentiles(arrivals: Any, seconds: Any, edges: Any) -> dict[str, Points]:
    lines: dict[str, Points] = {"p50": [], "p95": []}
    windows = np.digitize(arrivals, edges[1:-1])
    for window in range(WINDOWS):
        found = seconds[windows == window]
        if len(found):
            middle = float(edges[window] + edges[window + 1]) / 2
            for name, points in lines.items():
                points.append((middle, float(np.percentile(found, int(name[1:])))))
    return lines


def _rates(times: Any, edges: Any) -> Points:
    counts = np.histogram(times, edges)[0]
    middles, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    return [(float(middle), float(count) / width) for middle, count in zip(middles, counts, strict=True)]


def _gpus(result: SimulationResult) -> Points:
    """Returns the steps of the number of GPUs."""
    changes: list[tuple[float, int]] = []
    for cell in result.simulation.cells.cells.values():
        gpus = sum(cell.planned.gpus_of.values())
        changes.append((cell.started, gpus))
        if cell.ended is not None:
            changes.append((cell.ended, -gpus))
    changes.sort()
    totals = list(accumulate(gpus for _, gpus in changes))
    points: Points = []
    for (seconds, _), before, after in zip(changes, [0, *totals], totals, strict=False):
        points += [(seconds, float(before)), (seconds, float(after))]
    return [*points, (result.measurements.end, float(totals[-1]))]
