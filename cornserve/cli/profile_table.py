"""The table of measurements that `cornserve profile` prints."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from cornserve.profiler.batch_means import T_QUANTILE
from cornserve.profiler.results import MixMeasurement, OptionResults, describe_mix

MIB = 1 << 20


def results_table(options: Mapping[str, OptionResults]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("option", "requests that need", "requests/s", "±", "in flight", "ms alone", "p99 at 80 %"):
        table.add_column(column)
    for name, results in options.items():
        for measured in results.measurements:
            table.add_row(name, *_cells(measured))
    return table


def option_facts(name: str, results: OptionResults) -> str:
    """Returns what is the same for all measurements of an option."""
    facts = [f"{name} on {results.conditions.device} ({results.conditions.hardware})"]
    if results.startup:
        facts.append(f"start-up {results.startup[-1]:.1f} s")
    if results.memory is not None:
        facts.append(f"memory {results.memory.peak // MIB} MiB")
    return ", ".join(facts)


def _cells(measured: MixMeasurement) -> list[str]:
    best = next(level for level in measured.levels if level.rate == measured.rate)
    return [
        describe_mix(measured.mix),
        f"{measured.rate:.4g}",
        f"{measured.standard_error * T_QUANTILE:.1%}",
        str(best.concurrency),
        f"{1000 * measured.levels[0].seconds:.4g}",
        "" if measured.poisson is None else f"{1000 * measured.poisson.p99:.4g}",
    ]
