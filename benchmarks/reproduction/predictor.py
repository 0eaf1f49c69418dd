"""How far off the roofline predictor is."""

from __future__ import annotations

from benchmarks.reproduction.markdown import prose, table
from cornserve_planner.profiles.accuracy import Comparison, accuracy, calibrated, comparisons


def section() -> str:
    found = comparisons()
    kinds = [
        [it.kind, it.figures, f"{it.typical:.1f}×", f"{it.worst:.1f}×", f"{fit.typical:.1f}×", f"{fit.worst:.1f}×"]
        for it, fit in zip(accuracy(found), accuracy(calibrated(found)), strict=True)
    ]
    return prose("predictor").format(
        kinds=table(["", "figures", "off by", "worst", "calibrated", "worst"], kinds),
        table_1=table(
            ["", "published", "predicted", "off by", "of the peak"],
            [_row(it) for it in found if "Table 1" in it.source],
        ),
    )


def _row(it: Comparison) -> list[object]:
    off = max(it.ratio, 1 / it.ratio)
    what = f"{it.model}, {it.what}"
    return [what, f"{it.published:.3f}", f"{it.predicted:.3f}", f"{off:.1f}×", f"{it.utilisation:.0%}"]
