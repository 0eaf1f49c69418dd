"""The error of the roofline predictor."""

from __future__ import annotations

from benchmarks.reproduction.accuracy import PredictionComparison, accuracy, calibrated, comparisons
from benchmarks.reproduction.markdown import prose, table


def section() -> str:
    found = comparisons()
    kinds = [
        [
            row.kind,
            row.figures,
            f"{row.typical:.1f}×",
            f"{row.worst:.1f}×",
            f"{fit.typical:.1f}×",
            f"{fit.worst:.1f}×",
        ]
        for row, fit in zip(accuracy(found), accuracy(calibrated(found)), strict=True)
    ]
    return prose("predictor").format(
        kinds=table(["", "values", "error", "worst", "calibrated", "worst"], kinds),
        table_1=table(
            ["", "published", "predicted", "error", "of the peak"],
            [_row(row) for row in found if "Table 1" in row.source],
        ),
    )


def _row(row: PredictionComparison) -> list[object]:
    error = max(row.ratio, 1 / row.ratio)
    what = f"{row.model}, {row.what}"
    return [
        what,
        f"{row.published:.3f}",
        f"{row.predicted:.3f}",
        f"{error:.1f}×",
        f"{row.utilization:.0%}",
    ]
