"""Renders a result for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cornserve.bench.percentiles import Percentiles
from cornserve.bench.result import BenchResult, GeneratorStats, Goodput, RunNoise

COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")


def render_result(result: BenchResult) -> Group:
    modalities: list[Text | Table] = [Text(), _modalities(result)] if result.modalities.keys() - {"text"} else []
    return Group(_facts(result), Text(), _latencies(result), *modalities, *_notes(result))


def _facts(result: BenchResult) -> Table:
    counts = result.requests
    table = Table.grid(padding=(0, 3))
    unfinished = f", {counts.unfinished} unfinished" if counts.unfinished else ""
    if unsent := counts.offered - counts.sent:
        unfinished += f", {unsent} of {counts.offered} not sent"
    table.add_row("app", f"{result.settings.app} at {result.url}")
    table.add_row("requests", f"{counts.answered} answered, {counts.failed} failed{unfinished} in {result.seconds:g} s")
    table.add_row("throughput", _throughput(result))
    if result.prompt_tokens:
        table.add_row("tokens", f"{result.prompt_tokens} in prompts, {result.output_tokens} in responses")
    if result.audio is not None:
        factor = result.audio.real_time_factor
        table.add_row("speech", f"{result.audio.seconds:g} s, real-time factor {factor:g} (median)")
    if result.goodput is not None:
        table.add_row("goodput", _goodput(result.goodput))
    if result.noise is not None:
        table.add_row("A/A noise", _noise(result.noise))
    for kind, count in result.errors.items():
        table.add_row("failed", Text(f"{count} × {kind}", style="red"))
    return table


def _throughput(result: BenchResult) -> str:
    output = f", {result.output_tokens_per_second:.1f} output {result.tokens_are}/s" if result.output_tokens else ""
    return f"{result.requests_per_second:.2f} requests/s{output}"


def _goodput(goodput: Goodput) -> str:
    bounds = ", ".join(f"{name} ≤ {1000 * bound:g} ms" for name, bound in goodput.slo.items())
    return f"{goodput.requests_per_second:.2f} requests/s ({100 * goodput.share:.1f} %) with {bounds}"


def _noise(noise: RunNoise) -> str:
    """Returns the differences between the two runs of the load."""
    names = {
        "requests/s": noise.requests_per_second,
        "TTFT p50": noise.ttft_p50,
        "TPOT p50": noise.tpot_p50,
        "end to end p50": noise.e2e_p50,
        "p99": noise.e2e_p99,
    }
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in names.items() if value is not None)


def _latencies(result: BenchResult) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("milliseconds")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, percentiles in (
        ("time to first token", result.ttft_ms),
        ("time to first audio", result.audio.ttfa_ms if result.audio else None),
        ("time between tokens", result.tbt_ms),
        ("time per output token", result.tpot_ms),
        ("end to end", result.e2e_ms),
    ):
        if percentiles is not None:
            table.add_row(name, *_values(percentiles))
    return table


def _modalities(result: BenchResult) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("requests with")
    for column in ("answered", "failed", "media", "TTFT p50", "TTFT p99", "end to end p50", "end to end p99"):
        table.add_column(column, justify="right")
    for contents, measured in result.modalities.items():
        counts = (str(measured.answered), str(measured.failed), str(measured.media))
        name = "text only" if contents == "text" else contents
        table.add_row(name, *counts, *_median_and_p99(measured.ttft_ms), *_median_and_p99(measured.e2e_ms))
    return table


def _median_and_p99(percentiles: Percentiles | None) -> tuple[str, str]:
    return ("", "") if percentiles is None else (f"{percentiles.p50:.1f}", f"{percentiles.p99:.1f}")


def _values(percentiles: Percentiles) -> Iterator[str]:
    for column in COLUMNS:
        value: float = getattr(percentiles, column)
        yield f"{value:.1f}"


def _notes(result: BenchResult) -> Iterator[Text]:
    if result.interrupted:
        yield Text("\nInterrupted: the results are incomplete.", style="yellow")
    if result.generator.was_the_limit:
        yield Text(f"\n{_generator_warning(result.generator)}", style="yellow")


def _generator_warning(generator: GeneratorStats) -> str:
    late = "" if generator.late_ms is None else f" and sent requests {generator.late_ms.p99:.0f} ms late (p99)"
    return (
        f"The load generator was the bottleneck: it used {100 * generator.cpu:.0f} % of a core{late}. "
        "The server may be faster than this result: reduce the load, or run the generator on another machine."
    )
