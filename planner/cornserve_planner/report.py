"""What `cornserve plan` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cornserve_planner.cells import efficient
from cornserve_planner.explain import Explanation
from cornserve_planner.plan import Objective, Plan
from cornserve_planner.problem import Problem
from cornserve_planner.proposal import Instances
from cornserve_planner.session import Found

_UNITS = {Objective.RATE: "requests/s", Objective.GPUS: "GPUs", Objective.DOLLARS: "dollars an hour"}

SMALL = 5e-4
"""A factor that is not 1 by less is one that rounding has made."""
STRATEGIES = 5
"""As many are shown, and the monolith, unless all are asked for."""


def report(found: Found, *, everything: bool = False) -> RenderableType:
    """`everything`: also cells other than the largest, where figures are from, all strategies, and what one more
    replica would give."""
    parts: list[RenderableType] = [_heading(found)]
    if everything:
        parts += ["", *_sources(found)]
    if found.cells:
        parts += ["", _title("Cells"), _cells(found)]
    parts += ["", _result(found)]
    shown = zip(found.proposal.instances, found.explanations, strict=True)
    for entry, explanation in shown if everything else islice(shown, 1):
        parts += ["", *_instance(found.assembly.problem, entry, explanation, everything=everything)]
    return Group(*parts)


def replicas_of(plan: Plan) -> str:
    return ", ".join(f"{count} × {name}" for name, count in plan.replicas.items())


def _heading(found: Found) -> Text:
    assembly = found.assembly
    gpus = sorted({option.gpu for option in assembly.graph.options if option.gpu})
    figures = " and ".join(f"{count} {tag}" for tag, count in assembly.tags.items())
    return Text.assemble(
        (assembly.model.name, "bold"),
        f"{' on ' + ', '.join(gpus) if gpus else ''}: {_count(len(assembly.problem.shares), 'request type')}, "
        f"{_count(len(assembly.graph.options), 'deployment option')}, "
        f"{_count(len(assembly.problem.routes), 'valid path')}; rates: {figures}",
    )


def _sources(found: Found) -> Iterator[RenderableType]:
    yield _title("Rates that are known")
    table = _table(("requests/s",), text_first=("option",), text=("", "source"))
    for option, rate in found.assembly.rates:
        table.add_row(option, f"{rate.value:.4g}", rate.tag, rate.source)
    yield table
    yield ""
    factors = {name: it for name, it in found.assembly.conversion.factors.items() if abs(it - 1) > SMALL}
    if factors:
        listed = ", ".join(f"{name} {factor:.3g}" for name, factor in factors.items())
        yield f"Colocation factors (what an option takes, over what its components take alone), where not 1: {listed}"
    for check in found.assembly.conversion.checks:
        yield (
            f"Of another mix, {check.measurement.option} serves {check.measurement.rate:.4g} requests/s; "
            f"the conversion says {check.predicted:.4g} ({check.error:+.1%})"
        )
    if found.assembly.unused:
        listed = ", ".join(f"{entry.option} on {entry.gpus} × {entry.gpu}" for entry in found.assembly.unused)
        yield f"Not used of the profile: {listed}"
    for reason in found.assembly.problem.excluded.values():
        yield f"Left out: {reason}"


def _cells(found: Found) -> Table:
    table = _table(("GPUs", "requests/s", "per GPU", "proven"), text=("runs", ""))
    kept = {cell.gpus for cell in efficient(found.cells)}
    for cell in found.cells:
        state = "" if cell.gpus in kept else "no more than its halves" if cell.rate else "too small"
        row = [str(cell.gpus), f"{cell.rate:.4g}", f"{cell.rate / cell.gpus:.4g}"]
        proven = "" if cell.plan is None else "yes" if cell.plan.proven else f"{cell.plan.gap:.1%} gap"
        table.add_row(*row, proven, replicas_of(cell.plan) if cell.plan else "", state)
    return table


def _result(found: Found) -> Text:
    proposal = found.proposal
    serving = f"{_count(proposal.gpus, 'GPU')} serve{'s' * (proposal.gpus == 1)}"
    asked = "" if proposal.target is None else f" ({proposal.target:.4g} are asked for)"
    price = "" if proposal.dollars is None else f", ${proposal.dollars:.2f} an hour"
    of = f": {' + '.join(_cell(entry, found) for entry in proposal.instances)}" if found.cells else ", as one plan"
    direct = found.direct
    beside = "" if direct is None else f"\nAs one plan, without cells, {_count(direct.gpus, 'GPU')} would do (--whole)."
    return Text.assemble(
        (f"{serving} {proposal.rate:.4g} requests/s", "bold"),
        asked,
        of,
        price,
        beside,
    )


def _cell(entry: Instances, found: Found) -> str:
    size = next(cell.gpus for cell in found.cells if cell.plan == entry.plan)
    return f"{entry.count:,} cell{'s' * (entry.count > 1)} of {size}"


def _instance(
    problem: Problem, entry: Instances, explanation: Explanation, *, everything: bool
) -> Iterator[RenderableType]:
    plan = entry.plan
    yield _title(f"What runs on {_count(plan.gpus, 'GPU')} and serves {plan.capacity:.4g} requests/s")
    yield _options(problem, plan, explanation, everything=everything)
    yield ""
    yield _rates(problem, plan)
    yield ""
    yield f"Limited by {explanation.binding}."
    yield _bound(plan)
    yield ""
    yield _title("Fixed strategies")
    yield _strategies(explanation, everything=everything)


def _options(problem: Problem, plan: Plan, explanation: Explanation, *, everything: bool) -> Table:
    more = ("one more gives",) if everything else ()
    table = _table(("replicas", "GPUs of each", "busy", *more), text_first=("option",))
    for name, count in plan.replicas.items():
        row = [name, str(count), str(problem.option[name].gpus), f"{explanation.utilisation[name]:.0%}"]
        table.add_row(*row, *([f"{explanation.one_more[name]:+.3g}/s"] if everything else []))
    return table


def _rates(problem: Problem, plan: Plan) -> Table:
    table = _table(("share", "requests/s"), text_first=("type",), text=("path",))
    for kind, share in problem.shares.items():
        for index, entry in enumerate(rate for rate in plan.rates if rate.type == kind):
            first = (kind, f"{share:.3g}") if index == 0 else ("", "")
            table.add_row(*first, f"{entry.rate:.4g}", entry.path)
    return table


def _bound(plan: Plan) -> str:
    unit = _UNITS[plan.objective]
    proof = (
        f"Proven optimal by {plan.solver} in {plan.solve_seconds:.2f} s."
        if plan.proven
        else f"Not proven within {plan.solve_seconds:.0f} s: the best has at {_limit(plan)} {plan.bound:.4g} {unit}."
    )
    ties = (
        "" if plan.ties_settled else " Fewer GPUs or kinds of executors may do the same: ties were not all looked at."
    )
    return (
        f"{proof}{ties} If fractions of replicas could run, it would be {plan.relaxation:.4g} {unit} "
        f"({plan.integrality_gap:.1%} {'more' if plan.objective is Objective.RATE else 'less'})."
    )


def _limit(plan: Plan) -> str:
    return "most" if plan.objective is Objective.RATE else "least"


def _strategies(explanation: Explanation, *, everything: bool) -> Table:
    plan = explanation.plan
    table = _table((_UNITS[plan.objective], "of the plan's"), text_first=("",))
    for index, reached in enumerate(explanation.strategies):
        if index >= STRATEGIES and not reached.strategy.monolithic and not everything:
            continue
        value = reached.value(plan.objective)
        label = f"{reached.name} ({', '.join(map(str, reached.replicas.values()))})"
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


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
