"""The text that `cornserve plan adapt` and `cornserve plan check` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cornserve_planner.adaptation.drift import PlanDrift
from cornserve_planner.adaptation.saved_plan import AdaptedPlan
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.report.parts import count_text, gpus_text, table, title


def adaptation_report(adapted: AdaptedPlan) -> RenderableType:
    return Group(
        f"Running: {_summary(adapted.before)}",
        Text.assemble("Adapted: ", (_summary(adapted.file), "bold")),
        "",
        *_order(adapted),
    )


def drift_report(drift: PlanDrift) -> RenderableType:
    return Group(*_drift(drift))


def _summary(file: PlanFile) -> str:
    target = "" if file.target is None else f" (target: {file.target:.4g})"
    price = "" if file.dollars is None else f", ${file.dollars:.2f} per hour"
    cells = _cells(file, file.counts) or "no cells"
    return f"{gpus_text(file.total_gpus)}, {file.rate:.4g} requests/s{target}: {cells}{price}"


def _cells(file: PlanFile, counts: Mapping[int, int]) -> str:
    gpus = {cell.gpus: cell.gpus_of for cell in file.cells}
    return " + ".join(
        f"{count_text(count, 'cell')} of {gpus_text(gpus[size])}"
        for size, count in sorted(counts.items(), reverse=True)
    )


def _order(adapted: AdaptedPlan) -> Iterator[RenderableType]:
    order = adapted.order
    if not adapted.change.changes:
        yield "Nothing to change: the running cells are the best mixture."
        return
    yield title(f"Steps, with {gpus_text(adapted.free) if adapted.free else 'no GPUs'} free")
    steps = table(("after", "requests/s"), text=("stop", "start"))
    for step in order.steps:
        cells = (_cells(adapted.file, counts) for counts in (step.stops, step.starts))
        steps.add_row(f"{step.seconds:.4g} s", f"{step.rate:.4g}", *cells)
    yield steps
    yield ""
    for missing, seconds in order.shortfalls:
        served = order.required - missing
        yield f"For {seconds:.4g} s, the plan serves only {served:.4g} of {order.required:.4g} requests/s."
    if order.shortfalls:
        yield f"{order.lost:.4g} requests are lost or wait. More free GPUs (--free) shorten this."
    else:
        yield f"At least {order.required:.4g} requests/s are served throughout."
    if not order.proven:
        yield "A better order may exist: the search was stopped."
    if adapted.assumed:
        listed = ", ".join(f"{name} {seconds:.4g} s" for name, seconds in adapted.assumed.items())
        yield f"Start-up times that the plan file does not contain were assumed: {listed}."


def _drift(drift: PlanDrift) -> Iterator[RenderableType]:
    file = drift.file
    yield Text.assemble((f"Serves {drift.rate:.4g} requests/s of this workload", "bold"), _relative(drift))
    yield f"With the best probabilities for this workload: {drift.best_rate:.4g} requests/s."
    for name, share in drift.refused.items():
        yield f"Refused: {name}, {share:.3g} of the requests: no running cell has a path for them."
    yield ""
    yield _shares(drift)
    for entry in drift.cells:
        yield ""
        yield title(f"{count_text(entry.cell.count, 'cell')} of {gpus_text(entry.cell.gpus_of)}")
        options = table(("replicas", "utilization", "limit"), text_first=("option",), text=("",))
        for name, used in entry.utilization.items():
            limit = file.options[name].max_utilization
            note = "limits the plan" if name in entry.limiting else ""
            options.add_row(name, str(entry.cell.replicas[name]), f"{used:.0%}", f"{limit:.0%}", note)
        yield options


def _relative(drift: PlanDrift) -> str:
    planned = f"; planned: {drift.file.rate:.4g}"
    if drift.of_target is None:
        return planned
    return f"{planned}; {drift.of_target:.1%} of the target of {drift.file.target:.4g}"


def _shares(drift: PlanDrift) -> Table:
    shares = table(("planned", "now"), text_first=("type",))
    for name, kind in drift.file.types.items():
        if kind.share or name in drift.shares:
            shares.add_row(name, f"{kind.share:.3g}", f"{drift.shares.get(name, 0.0):.3g}")
    return shares
