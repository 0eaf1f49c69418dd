"""The text that `cornserve plan` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cornserve_planner.conversion.size_spread import size_spreads
from cornserve_planner.conversion.throughput_conversion import CONFIDENCE
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.solution import Objective, Solution
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.plan_file.parts import gpus_by_type
from cornserve_planner.planning.confidence import PlanConfidence
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.report.candidate_report import candidate_parts
from cornserve_planner.report.parts import count_text, gpus_text, table, title
from cornserve_planner.solve.cells import efficient_cells
from cornserve_planner.solve.explanation import PlanExplanation

_UNITS = {Objective.RATE: "requests/s", Objective.GPUS: "GPUs", Objective.DOLLARS: "dollars per hour"}

FACTOR_TOLERANCE = 5e-4
"""The report omits colocation factors that differ from 1 by less than this, which is a rounding error."""
STRATEGIES = 5
"""The number of strategies shown by default. The monolith is always shown."""


def report(result: PlanResult, *, everything: bool = False) -> RenderableType:
    """
    Args:
        everything: also show the sources of the rates, the plans of all cells, all strategies, and the gain of one more
            replica.
    """
    parts: list[RenderableType] = [_heading(result), *_sizes(result, everything=everything)]
    if everything:
        parts += ["", *_sources(result)]
    if not result.whole:
        parts += ["", title("Cells"), _cells(result)]
    file, problem = result.file, result.inputs.problem
    parts += ["", _summary(result), *confidence_lines(result.confidence, problem, file, everything=everything)]
    parts += candidate_parts(result, everything=everything)
    shown = zip(result.running, result.explanations, strict=True)
    for entry, explanation in shown if everything else islice(shown, 1):
        gpus = gpus_text(gpus_by_type(file.options, entry.plan.replicas))
        parts += ["", title(f"Plan for {gpus}: {entry.plan.capacity:.4g} requests/s")]
        parts += plan_parts(problem, entry.plan, explanation, everything=everything)
    return Group(*parts)


def replicas_text(replicas: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in replicas.items())


def _heading(result: PlanResult) -> Text:
    inputs = result.inputs
    gpus = sorted({option.gpu for option in inputs.graph.options if option.gpu})
    types = {name for name, share in inputs.problem.shares.items() if share}
    paths = [path for path in inputs.problem.paths if path.type in types]
    tags = ", ".join(f"{count} {tag}" for tag, count in inputs.tags.items())
    return Text.assemble(
        (inputs.model.name, "bold"),
        f"{' on ' + ', '.join(gpus) if gpus else ''}: {count_text(len(types), 'request type')}, "
        f"{count_text(len(inputs.graph.options), 'deployment option')}, "
        f"{count_text(len(paths), 'valid path')}; rates: {tags}",
    )


def _sizes(result: PlanResult, *, everything: bool) -> Iterator[str]:
    """Describes the error of using the mean size of a type's requests."""
    workload, conversion = result.inputs.workload, result.inputs.conversion
    if not any(cost.per_unit for cost in conversion.costs.values()):
        if workload.sizes or everything:
            yield "Request sizes are not modeled: the profile has no measurements at several sizes."
        return
    for spread in islice(size_spreads(workload, conversion), None if everything else 1):
        yield (
            f"Request sizes: within type {spread.type}, the seconds of {spread.component} vary by "
            f"{spread.variation:.0%} around the mean, up to {spread.largest:.3g} times the mean."
        )


def _sources(result: PlanResult) -> Iterator[RenderableType]:
    yield title("Known rates")
    rows = table(("requests/s",), text_first=("option",), text=("", "source"))
    for option, rate in result.inputs.rates:
        rows.add_row(option, f"{rate.value:.4g}", rate.tag, rate.source)
    yield rows
    yield ""
    all_factors = result.inputs.conversion.factors
    factors = {name: factor for name, factor in all_factors.items() if abs(factor - 1) > FACTOR_TOLERANCE}
    if factors:
        listed = ", ".join(f"{name} {factor:.3g}" for name, factor in factors.items())
        yield f"Colocation factors other than 1 (time of an option / time of its components alone): {listed}"
    for check in result.inputs.conversion.checks:
        yield (
            f"Fit of several mixes: {check.measurement.option} serves {check.measurement.rate:.4g} requests/s, "
            f"the conversion predicts {check.predicted:.4g} ({check.error:+.1%})"
        )
    if result.inputs.unused:
        listed = ", ".join(f"{entry.option} on {entry.gpus} × {entry.gpu}" for entry in result.inputs.unused)
        yield f"Unused entries of the profile: {listed}"
    for reason in result.inputs.problem.excluded.values():
        yield f"Excluded: {reason}"


def _cells(result: PlanResult) -> Table:
    rows = table(("GPUs", "requests/s", "per GPU", "proven"), text=("replicas", ""))
    kept = {cell.gpus for cell in efficient_cells(result.cells)}
    for cell in result.cells:
        note = "" if cell.gpus in kept else "not used: smaller cells serve as much" if cell.rate else "too small"
        row = [str(cell.gpus), f"{cell.rate:.4g}", f"{cell.rate / cell.gpus:.4g}"]
        proven = "" if cell.plan is None else "yes" if cell.plan.proven else f"{cell.plan.gap:.1%} gap"
        rows.add_row(*row, proven, replicas_text(cell.plan.replicas) if cell.plan else "", note)
    return rows


def _summary(result: PlanResult) -> Text:
    cells = (f"{count_text(cell.count, 'cell')} of {count_text(cell.gpus, 'GPU')}" for cell in result.running)
    return summary(result.file, "one plan" if result.whole else " + ".join(cells), result.direct)


def summary(file: PlanFile, listed: str, direct: Solution | None = None) -> Text:
    """
    Args:
        listed: names the running cells.
        direct: the plan without cells, for comparison.
    """
    serves = (
        f"{gpus_text(file.total_gpus)} serve{'s' * (sum(file.total_gpus.values()) == 1)} {file.rate:.4g} requests/s"
        f"{_headroom(file)}"
    )
    target = "" if file.target is None else f" (target: {file.target:.4g})"
    price = "" if file.dollars is None else f", ${file.dollars:.2f} per hour"
    comparison = "" if direct is None else f"\nOne plan without cells needs {count_text(direct.gpus, 'GPU')} (--whole)."
    losses = [
        f"\nAfter the loss of any one replica: {cell.rate_after_loss:.4g} requests/s."
        for cell in file.cells
        if cell.rate_after_loss is not None
    ]
    return Text.assemble((serves, "bold"), f"{target}: {listed}{price}{comparison}{''.join(losses)}{_unserved(file)}")


def _headroom(file: PlanFile) -> str:
    """States the part of the replicas' time that the plan does not use."""
    running = {name for cell in file.cells if cell.count for name in cell.replicas}
    limits = {file.options[name].max_utilization for name in running}
    if max(limits, default=1.0) == 1:
        return ""
    return f" with {'at least ' * (len(limits) > 1)}{1 - max(limits):.0%} headroom"


def confidence_lines(
    found: PlanConfidence, problem: PlanningProblem, file: PlanFile, *, everything: bool
) -> Iterator[RenderableType]:
    """Two lines: the interval of the rate, and the estimate that would change the plan first."""
    utilization = min(problem.max_utilization.values(), default=1.0)
    at_most = f" at {utilization:.0%} utilization" if utilization < 1 else ""
    interval = f"{found.low:.4g} to {found.high:.4g} requests/s ({CONFIDENCE:.0%})"
    yield f"Rate{at_most}, by the errors of the profile: {interval}."
    if (weakest := found.weakest) is not None:
        source = found.sources[weakest.option]
        origin = "assumed" if source.tag is None else source.tag
        survives = any(cell.rate_after_loss is not None for cell in file.cells)
        yield Text(
            f"Depends on the time of {weakest.option}, which is {origin} ({source.text}): if it is {weakest.times:.2f} "
            f"times as long, {replicas_text(weakest.replicas)} serve more"
            f"{' while no replica is lost' if survives else ''}. If it is {weakest.example:.2f} times as long, this "
            f"plan serves {weakest.served * file.rate:.4g} requests/s instead of {file.rate:.4g}, and the other one "
            f"{weakest.better * file.rate:.4g}. Measure it first: cornserve profile APP --option "
            f"{shlex.quote(source.option)}"
        )
    if everything and found.changes:
        rows = table(("times as long",), text_first=("option",), text=("origin", "better plan"))
        for change in found.changes:
            origin = found.sources[change.option].tag or "assumed"
            rows.add_row(change.option, f"{change.times:.2f}", origin, replicas_text(change.replicas))
        yield from ("", title("Times at which another plan serves at least 1% more"), rows)


def _unserved(file: PlanFile) -> str:
    """Names the request types that no running cell serves; they are not in the workload."""
    running = [cell for cell in file.cells if cell.count]
    names = [name for name in file.types if not any(name in cell.probabilities for cell in running)]
    return f"\nNot in the workload, and refused by this plan: {', '.join(names)}." if names else ""


def plan_parts(
    problem: PlanningProblem, plan: Solution, explanation: PlanExplanation, *, everything: bool
) -> Iterator[RenderableType]:
    """Yields the replicas of a plan, its rates, limits, and the fixed strategies."""
    yield _options(problem, plan, explanation, everything=everything)
    yield ""
    yield _rates(problem, plan)
    yield ""
    yield f"Limited by {explanation.binding}."
    yield _bound(plan)
    if explanation.strategies:
        yield ""
        yield title("Fixed strategies")
        yield _strategies(explanation, everything=everything)


def _options(problem: PlanningProblem, plan: Solution, explanation: PlanExplanation, *, everything: bool) -> Table:
    more = ("gain of one more",) if everything else ()
    rows = table(("replicas", "GPUs each", "utilization", *more), text_first=("option",))
    for name, count in plan.replicas.items():
        row = [name, str(count), str(problem.option[name].gpus), f"{explanation.utilization[name]:.0%}"]
        rows.add_row(*row, *([f"{explanation.one_more[name]:+.3g}/s"] if everything else []))
    return rows


def _rates(problem: PlanningProblem, plan: Solution) -> Table:
    rows = table(("share", "requests/s"), text_first=("type",), text=("path",))
    for kind, share in problem.shares.items():
        for index, entry in enumerate(rate for rate in plan.rates if rate.type == kind):
            first = (kind, f"{share:.3g}") if index == 0 else ("", "")
            rows.add_row(*first, f"{entry.rate:.4g}", entry.path)
    return rows


def _bound(plan: Solution) -> str:
    unit = _UNITS[plan.objective]
    maximizes = plan.objective is Objective.RATE
    if plan.proven:
        proof = f"Proven optimal by {plan.solver} in {plan.solve_seconds:.2f} s."
    else:
        limit = "most" if maximizes else "least"
        proof = (
            f"Not proven optimal after {plan.solve_seconds:.0f} s: the optimum is at {limit} {plan.bound:.4g} {unit}."
        )
    ties = "" if plan.ties_settled else " A smaller plan of the same value may exist: the search was stopped."
    return (
        f"{proof}{ties} With fractional replicas: {plan.relaxation:.4g} {unit} "
        f"({plan.integrality_gap:.1%} {'more' if maximizes else 'less'})."
    )


def _strategies(explanation: PlanExplanation, *, everything: bool) -> Table:
    plan = explanation.plan
    rows = table((_UNITS[plan.objective], "relative to the plan"), text_first=("",))
    for index, result in enumerate(explanation.strategies):
        if index >= STRATEGIES and not result.strategy.monolithic and not everything:
            continue
        value = result.value(plan.objective)
        label = f"{result.name} ({', '.join(map(str, result.replicas.values()))})"
        rows.add_row(label, f"{value:.4g}", f"{value / plan.value:.1%}")
    return rows
