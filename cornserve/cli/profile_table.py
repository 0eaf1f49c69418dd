"""The table of measurements that `cornserve profile` prints."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from cornserve.profiler.batch_means import T_QUANTILE
from cornserve.profiler.results import MixMeasurement, OptionResults, StartSummary, describe_mix

MIB = 1 << 20


def results_table(options: Mapping[str, OptionResults]) -> Table:
    table = _table("option", "requests that need", "requests/s", "±", "in flight", "ms alone", "p99 at 80 %")
    for name, results in options.items():
        for measured in results.measurements:
            table.add_row(name, *_cells(measured))
    return table


def curves_table(options: Mapping[str, OptionResults]) -> Table:
    """Returns the throughputs and latencies of each option by the number of requests in flight."""
    table = _table("option", "requests that need", "in flight", "requests/s", "ms", "±", "p50", "p99")
    for name, results in options.items():
        for measured in results.measurements:
            for level in measured.levels:
                milliseconds = (f"{1000 * value:.4g}" for value in (level.seconds, level.p50, level.p99))
                mean, median, high = milliseconds
                error = f"{level.standard_error * T_QUANTILE:.1%}"
                row = (
                    describe_mix(measured.mix),
                    str(level.concurrency),
                    f"{level.rate:.4g}",
                    mean,
                    error,
                    median,
                    high,
                )
                table.add_row(name, *row)
    return table


def option_facts(name: str, results: OptionResults) -> str:
    """Returns what is the same for all measurements of an option."""
    facts = [f"{name} on {results.conditions.device} ({results.conditions.hardware})"]
    if results.startup:
        facts.append(f"start-up {StartSummary.of(results.startup)}")
    if results.memory is not None:
        facts.append(f"memory {results.memory.peak // MIB} MiB")
    return ", ".join(facts)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column)
    return table


def _cells(measured: MixMeasurement) -> list[str]:
    best = next(level for level in measured.levels if level.rate == measured.rate)
    return [
        describe_mix(measured.mix),
        f"{'' if measured.is_saturated else '≥ '}{measured.rate:.4g}",
        f"{measured.standard_error * T_QUANTILE:.1%}",
        str(best.concurrency),
        f"{1000 * measured.levels[0].seconds:.4g}",
        "" if measured.poisson is None else f"{1000 * measured.poisson.p99:.4g}",
    ]
