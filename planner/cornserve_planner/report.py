"""The text that `cornserve plan` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cornserve_planner.cells import efficient_cells
from cornserve_planner.deployment_plan import InstanceGroup
from cornserve_planner.explanation import PlanExplanation
from cornserve_planner.plan import Objective, Plan
from cornserve_planner.planning import PlanResult
from cornserve_planner.problem import PlanningProblem

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
    parts: list[RenderableType] = [_heading(result)]
    if everything:
        parts += ["", *_sources(result)]
    if result.cells:
        parts += ["", _title("Cells"), _cells(result)]
    parts += ["", _summary(result)]
    shown = zip(result.deployment.instances, result.explanations, strict=True)
    for entry, explanation in shown if everything else islice(shown, 1):
        parts += ["", *_instance(result.inputs.problem, entry, explanation, everything=everything)]
    return Group(*parts)


def replicas_of(plan: Plan) -> str:
    return ", ".join(f"{count} × {name}" for name, count in plan.replicas.items())


def _heading(result: PlanResult) -> Text:
    inputs = result.inputs
    gpus = sorted({option.gpu for option in inputs.graph.options if option.gpu})
    tags = ", ".join(f"{count} {tag}" for tag, count in inputs.tags.items())
    return Text.assemble(
        (inputs.model.name, "bold"),
        f"{' on ' + ', '.join(gpus) if gpus else ''}: {_count(len(inputs.problem.shares), 'request type')}, "
        f"{_count(len(inputs.graph.options), 'deployment option')}, "
        f"{_count(len(inputs.problem.paths), 'valid path')}; rates: {tags}",
    )


def _sources(result: PlanResult) -> Iterator[RenderableType]:
    yield _title("Known rates")
    table = _table(("requests/s",), text_first=("option",), text=("", "source"))
    for option, rate in result.inputs.rates:
        table.add_row(option, f"{rate.value:.4g}", rate.tag, rate.source)
    yield table
    yield ""
    all_factors = result.inputs.conversion.factors
    factors = {name: factor for name, factor in all_factors.items() if abs(factor - 1) > FACTOR_TOLERANCE}
    if factors:
        listed = ", ".join(f"{name} {factor:.3g}" for name, factor in factors.items())
        yield f"Colocation factors other than 1 (time of an option / time of its components alone): {listed}"
    for check in result.inputs.conversion.checks:
        yield (
            f"Check with another mix: {check.measurement.option} serves {check.measurement.rate:.4g} requests/s, "
            f"the conversion predicts {check.predicted:.4g} ({check.error:+.1%})"
        )
    if result.inputs.unused:
        listed = ", ".join(f"{entry.option} on {entry.gpus} × {entry.gpu}" for entry in result.inputs.unused)
        yield f"Unused entries of the profile: {listed}"
    for reason in result.inputs.problem.excluded.values():
        yield f"Excluded: {reason}"


def _cells(result: PlanResult) -> Table:
    table = _table(("GPUs", "requests/s", "per GPU", "proven"), text=("replicas", ""))
    kept = {cell.gpus for cell in efficient_cells(result.cells)}
    for cell in result.cells:
        note = "" if cell.gpus in kept else "not used: smaller cells serve as much" if cell.rate else "too small"
        row = [str(cell.gpus), f"{cell.rate:.4g}", f"{cell.rate / cell.gpus:.4g}"]
        proven = "" if cell.plan is None else "yes" if cell.plan.proven else f"{cell.plan.gap:.1%} gap"
        table.add_row(*row, proven, replicas_of(cell.plan) if cell.plan else "", note)
    return table


def _summary(result: PlanResult) -> Text:
    deployment, direct = result.deployment, result.direct
    serves = f"{_count(deployment.gpus, 'GPU')} serve{'s' * (deployment.gpus == 1)} {deployment.rate:.4g} requests/s"
    target = "" if deployment.target is None else f" (target: {deployment.target:.4g})"
    instances = " + ".join(_cell(entry, result) for entry in deployment.instances) if result.cells else "one plan"
    price = "" if deployment.dollars is None else f", ${deployment.dollars:.2f} per hour"
    comparison = "" if direct is None else f"\nOne plan without cells needs {_count(direct.gpus, 'GPU')} (--whole)."
    return Text.assemble((serves, "bold"), f"{target}: {instances}{price}{comparison}")


def _cell(entry: InstanceGroup, result: PlanResult) -> str:
    size = next(cell.gpus for cell in result.cells if cell.plan == entry.plan)
    return f"{_count(entry.count, 'cell')} of {_count(size, 'GPU')}"


def _instance(
    problem: PlanningProblem, entry: InstanceGroup, explanation: PlanExplanation, *, everything: bool
) -> Iterator[RenderableType]:
    plan = entry.plan
    yield _title(f"Plan for {_count(plan.gpus, 'GPU')}: {plan.capacity:.4g} requests/s")
    yield _options(problem, plan, explanation, everything=everything)
    yield ""
    yield _rates(problem, plan)
    yield ""
    yield f"Limited by {explanation.binding}."
    yield _bound(plan)
    yield ""
    yield _title("Fixed strategies")
    yield _strategies(explanation, everything=everything)


def _options(problem: PlanningProblem, plan: Plan, explanation: PlanExplanation, *, everything: bool) -> Table:
    more = ("gain of one more",) if everything else ()
    table = _table(("replicas", "GPUs each", "utilisation", *more), text_first=("option",))
    for name, count in plan.replicas.items():
        row = [name, str(count), str(problem.option[name].gpus), f"{explanation.utilisation[name]:.0%}"]
        table.add_row(*row, *([f"{explanation.one_more[name]:+.3g}/s"] if everything else []))
    return table


def _rates(problem: PlanningProblem, plan: Plan) -> Table:
    table = _table(("share", "requests/s"), text_first=("type",), text=("path",))
    for kind, share in problem.shares.items():
        for index, entry in enumerate(rate for rate in plan.rates if rate.type == kind):
            first = (kind, f"{share:.3g}") if index == 0 else ("", "")
            table.add_row(*first, f"{entry.rate:.4g}", entry.path)
    return table


def _bound(plan: Plan) -> str:
    unit = _UNITS[plan.objective]
    maximizes = plan.objective is Objective.RATE
    if plan.proven:
        proof = f"Proven optimal by {plan.solver} in {plan.solve_seconds:.2f} s."
    else:
        limit = "most" if maximizes else "least"
        proof = (
            f"Not proven optimal after {plan.solve_seconds:.0f} s: the optimum is at {limit} {plan.bound:.4g} {unit}."
        )
    ties = (
        "" if plan.ties_settled else " A plan with fewer GPUs or kinds of executors may exist: the search was stopped."
    )
    return (
        f"{proof}{ties} With fractional replicas: {plan.relaxation:.4g} {unit} "
        f"({plan.integrality_gap:.1%} {'more' if maximizes else 'less'})."
    )


def _strategies(explanation: PlanExplanation, *, everything: bool) -> Table:
    plan = explanation.plan
    table = _table((_UNITS[plan.objective], "relative to the plan"), text_first=("",))
    for index, result in enumerate(explanation.strategies):
        if index >= STRATEGIES and not result.strategy.monolithic and not everything:
            continue
        value = result.value(plan.objective)
        label = f"{result.name} ({', '.join(map(str, result.replicas.values()))})"
        table.add_row(label, f"{value:.4g}", f"{value / plan.value:.1%}")
    return table


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _table(numbers: Iterable[str], *, text_first: Iterable[str] = (), text: Iterable[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in text_first:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    for column in text:
        table.add_column(column, overflow="fold")
    return table


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
