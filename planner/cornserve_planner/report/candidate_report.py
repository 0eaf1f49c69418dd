"""The candidates of a plan that meets latency targets, as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.console import RenderableType

from cornserve_planner.goodput.search import describe
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.report.parts import count_text, table, title

SHOWN = 8
"""The number of candidates shown by default."""


def candidate_parts(result: PlanResult, *, everything: bool) -> Iterator[RenderableType]:
    """Yields the goodput of each candidate, and the limits of the steps of the chosen one."""
    if not result.candidates:
        return
    yield from ("", title("Candidates, by the requests/s that meet the targets"))
    rows = table(("goodput", "95% interval", "bound", "requests"), text_first=("roles",), text=("replicas",))
    for each in islice(result.candidates, None if everything else SHOWN):
        candidate, goodput = each.candidate, each.goodput
        rows.add_row(
            candidate.kind,
            f"below {each.most:.4g}" if goodput is None else f"{goodput.value:.4g}",
            "" if goodput is None else f"{goodput.low:.4g} to {goodput.high:.4g}",
            f"{candidate.bound:.4g}",
            f"{each.requests:,}",
            describe(candidate),
        )
    yield rows
    if (hidden := len(result.candidates) - SHOWN) > 0 and not everything:
        yield f"{count_text(hidden, 'more candidate')} (--explain)"
    used = {name for cell in result.running for name in cell.plan.replicas}
    for name, limits in result.file.step_limits.items():
        if name in used:
            yield f"Steps of {name}: {', '.join(f'{field}={value}' for field, value in limits.items())}"
