"""InternVL3: the best strategy serves up to 2.89 times as much as another [C §2.4, Figure 2]."""

from __future__ import annotations

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.published import PublishedFigures

ROUNDING = 0.05
"""Half of the last printed digit."""


def section() -> str:
    columns = printed()
    ratios = {name: max(rates.values()) / min(rates.values()) for name, rates in columns.items()}
    largest = max(ratios, key=ratios.__getitem__)
    most = (max(columns[largest].values()) + ROUNDING) / (min(columns[largest].values()) - ROUNDING)
    every = [rate for rates in columns.values() for rate in rates.values()]
    rows = [
        [name, *(f"{rate:.1f}" for rate in rates.values()), f"{ratios[name]:.2f}×"] for name, rates in columns.items()
    ]
    return prose("best_strategy").format(
        columns=table(["column", *columns[largest], "largest ÷ smallest"], rows),
        largest=ratios[largest],
        most=most,
        across=max(every) / min(every),
        least_across=(max(every) - ROUNDING) / (min(every) + ROUNDING),
        most_across=(max(every) + ROUNDING) / (min(every) - ROUNDING),
    )


def printed() -> dict[str, dict[str, float]]:
    """Returns the printed requests per second, by column and strategy."""
    found: dict[str, dict[str, float]] = {}
    for entry in PublishedFigures.shipped().from_paper("C", "Figure 2"):
        strategy, _, column = entry.what.rpartition(", column ")
        found.setdefault(column, {})[strategy] = entry.figure.value
    return found
