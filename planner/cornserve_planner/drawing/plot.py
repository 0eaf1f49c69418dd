"""Draws with matplotlib: executor graphs with throughput by number of GPUs, and simulations over time.

This is the only module that imports matplotlib. `diagram.py` and `simulation/time_series.py` compute the contents.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from cornserve_planner.drawing.layout import DiagramEdge, DiagramLayout, Point, layout_graph

STYLE = {
    "font.size": 9,
    "svg.fonttype": "none",  # keep text as text
    "svg.hashsalt": "cornserve",  # make the file deterministic
    "axes.spines.top": False,
    "axes.spines.right": False,
}

LAYER_INCHES, ROW_INCHES = 2.5, 0.95
BOX = (0.62, 0.66)
"""Width in layers and height in rows."""

INK, FAINT, FULL, FREE, FLOW = "#263238", "#78909c", "#ffb300", "#fff3d6", "#90a4ae"
LINES = ("#d84315", "#1565c0", "#2e7d32", "#6a1b9a", "#00838f", "#9e9d24")


@dataclass(frozen=True, slots=True)
class DiagramBox:
    """An executor group."""

    title: str
    lines: Sequence[str]
    utilization: float
    """The used fraction of its replicas' time, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class GraphDiagram:
    title: str
    boxes: Mapping[str, DiagramBox]
    rates: Mapping[DiagramEdge, float]
    """Requests per second on each arrow."""


@dataclass(frozen=True, slots=True)
class ChartCurve:
    label: str
    points: Sequence[Point]
    """Pairs of GPUs and requests per second."""
    marks_only: bool = False


@dataclass(frozen=True, slots=True)
class RateChart:
    title: str
    curves: Sequence[ChartCurve]


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Lines over time. `lines`: points of seconds and values, by label. `unit`: that of the values."""

    title: str
    unit: str
    lines: Mapping[str, Sequence[Point]]


def draw_times(file: Path, charts: Sequence[TimeChart]) -> None:
    """Draws charts below each other, on one axis of time. The suffix (.svg, .png, .pdf) selects the format.

    Raises:
        OSError: the file cannot be written.
    """
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(8.0, 2.6 * len(charts)), layout="constrained")
        rows: Any = figure.subplots(len(charts), 1, sharex=True, squeeze=False)
        for axes, chart in zip(rows[:, 0], charts, strict=True):
            axes.set_title(chart.title, loc="left", color=INK, fontweight="bold")
            for (label, points), color in zip(chart.lines.items(), LINES, strict=False):
                seconds, values = zip(*points, strict=True)
                axes.plot(seconds, values, label=label, color=color, lw=1.4)
            axes.set_ylabel(chart.unit)
            axes.set_ylim(bottom=0)
            axes.grid(color="#eceff1")
            axes.set_axisbelow(True)
            axes.legend(frameon=False)
        rows[-1, 0].set_xlabel("simulated seconds")
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def draw(file: Path, graphs: Sequence[GraphDiagram], rates: RateChart | None = None) -> None:
    """Draws all diagrams below each other in one file. Its suffix (.svg, .png, .pdf) selects the format.

    Raises:
        OSError: the file cannot be written.
        ValueError: the format is not supported.
    """
    layouts = [layout_graph([*graph.boxes], [*graph.rates]) for graph in graphs]
    sizes = [_inches(graph_layout) for graph_layout in layouts] + ([(7.0, 3.6)] if rates is not None else [])
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height), layout="constrained")
        rows = figure.subplots(len(sizes), 1, squeeze=False, height_ratios=[height for _, height in sizes])[:, 0]
        for axes, graph, graph_layout in zip(rows, graphs, layouts, strict=False):
            _draw_graph(axes, graph, graph_layout)
        if rates is not None:
            _draw_rates(rows[-1], rates)
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)


def _inches(graph_layout: DiagramLayout) -> tuple[float, float]:
    return max(5.0, LAYER_INCHES * graph_layout.layers), 0.6 + ROW_INCHES * max(1.5, graph_layout.rows)


def _draw_graph(axes: Any, graph: GraphDiagram, graph_layout: DiagramLayout) -> None:
    axes.set_axis_off()
    axes.set_title(graph.title, loc="left", color=INK, fontweight="bold")
    heights = [y for _, y in graph_layout.positions.values()] + [
        y for route in graph_layout.routes.values() for _, y in route
    ]
    axes.set_xlim(-BOX[0] / 2 - 0.05, graph_layout.layers - 1 + BOX[0] / 2 + 0.05)
    axes.set_ylim(min(heights) - 0.6, max(heights) + 0.6)
    most = max(graph.rates.values(), default=1.0) or 1.0
    ports = _ports(graph_layout)
    for edge, rate in graph.rates.items():
        (x0, y0), *passed, (x1, y1) = graph_layout.routes[edge]
        right = -1 if edge in graph_layout.backward else 1
        start = (x0 + right * BOX[0] / 2, y0 + ports[edge, 0])
        end = (x1 - right * (BOX[0] / 2 + 0.02), y1 + ports[edge, -1])
        _draw_arrow(axes, [start, *passed, end], rate, rate / most)
    for name, box in graph.boxes.items():
        _draw_box(axes, graph_layout.positions[name], box)


def _draw_box(axes: Any, center: Point, box: DiagramBox) -> None:
    (x, y), (width, height) = center, BOX
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.06"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc=FREE, ec="none", zorder=3))
    filled = FancyBboxPatch(corner, width, height, boxstyle=style, fc=FULL, ec="none", zorder=3, alpha=0.75)
    filled.set_clip_path(Outline.unit_rectangle(), _share_of_box(axes, corner, box.utilization))
    axes.add_patch(filled)
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, fc="none", ec=INK, lw=1, zorder=4))
    text = [box.title, *box.lines]
    for index, line in enumerate(text):
        offset = ((len(text) - 1) / 2 - index) * height / (len(text) + 0.6)
        weight = "bold" if index == 0 else "normal"
        axes.text(x, y + offset, line, ha="center", va="center", color=INK, fontweight=weight, zorder=5)


def _share_of_box(axes: Any, corner: Point, share: float) -> Any:
    """Returns the transform from the unit square to the filled part of a box, from the left."""
    return Affine2D().scale(BOX[0] * min(1.0, share), BOX[1]).translate(*corner) + axes.transData


def _ports(graph_layout: DiagramLayout) -> dict[tuple[DiagramEdge, int], float]:
    """Returns the vertical offsets of arrow starts (0) and ends (-1) from the middle of a box's side, in rows.

    The offsets are different for all arrows on one side.
    """
    by_side: dict[tuple[str, bool], list[tuple[DiagramEdge, int]]] = {}
    for edge in graph_layout.routes:
        for end in (0, -1):
            on_the_right = (end == 0) != (edge in graph_layout.backward)
            by_side.setdefault((edge[end], on_the_right), []).append((edge, end))
    ports: dict[tuple[DiagramEdge, int], float] = {}
    for ends in by_side.values():
        ends.sort(key=lambda end_of_edge: -graph_layout.routes[end_of_edge[0]][1 if end_of_edge[1] == 0 else -2][1])
        for index, end_of_edge in enumerate(ends):
            ports[end_of_edge] = ((len(ends) - 1) / 2 - index) * min(0.16, 0.5 * BOX[1] / len(ends))
    return ports


def _draw_arrow(axes: Any, points: Sequence[Point], rate: float, share: float) -> None:
    vertices, codes = [points[0]], [Outline.MOVETO]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        bend = (x1 - x0) / 2
        vertices += [(x0 + bend, y0), (x1 - bend, y1), (x1, y1)]
        codes += [Outline.CURVE4] * 3
    arrow = FancyArrowPatch(
        path=Outline(vertices, codes),
        arrowstyle="-|>,head_length=5,head_width=2.5",
        lw=1 + 4 * share,
        color=FLOW,
        zorder=1,
    )
    axes.add_patch(arrow)
    passed = points[1:-1]
    (x0, y0), (x1, y1) = points[0], points[1]
    along = 0.5 if x0 < x1 else 0.25  # next to the label of an opposite arrow
    where = passed[len(passed) // 2] if passed else (x0 + along * (x1 - x0), y0 + along * (y1 - y0))
    axes.text(
        *(*where, f"{rate:.3g}/s"),
        ha="center",
        va="center",
        fontsize=8,
        color=INK,
        zorder=2,
        bbox={"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1},
    )


def _draw_rates(axes: Any, chart: RateChart) -> None:
    axes.set_title(chart.title, loc="left", color=INK, fontweight="bold")
    for curve, color in zip(chart.curves, LINES, strict=False):
        gpus, rates = zip(*curve.points, strict=True)
        shape = {"ls": "none", "marker": "o", "ms": 5} if curve.marks_only else {"lw": 1.6, "drawstyle": "steps-post"}
        axes.plot(gpus, rates, label=curve.label, color=color, **shape)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("requests/s")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#eceff1")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
