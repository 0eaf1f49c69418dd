"""The text that `cornserve plan --model-rate` prints."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType

from cornserve_planner.planning.joint_plan import JointPlan
from cornserve_planner.report.parts import table
from cornserve_planner.report.plan_report import confidence_lines, plan_parts, summary


def joint_report(found: JointPlan, *, everything: bool = False) -> RenderableType:
    """
    Args:
        everything: also show all strategies and the gain of one more replica.
    """
    rates, total = table(("target", "requests/s"), text_first=("model",)), math.fsum(found.rates.values())
    for model, rate in found.rates.items():
        rates.add_row(model, f"{rate:.4g}", f"{found.file.rate * rate / total:.4g}")
    return Group(
        rates,
        "",
        summary(found.file, "one plan"),
        *confidence_lines(found.confidence, found.problem, found.file, everything=everything),
        "",
        *plan_parts(found.problem, found.plan, found.explanation, everything=everything),
    )
