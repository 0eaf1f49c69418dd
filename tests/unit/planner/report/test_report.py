"""The printed report, with modified plans."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest
from cornserve_planner.planning.result import PlanResult
from cornserve_planner.report.plan_report import report


@pytest.fixture(scope="module")
def found() -> PlanResult:
    return make_plan(PlanRequest("qwen-image", gpus=2, whole=True))


def printed(found: PlanResult, **changes: object) -> str:
    """Returns the report of a result with another plan."""
    (cell,) = found.running
    other = replace(cell, plan=cell.plan.model_copy(update=changes))
    console = Console(file=StringIO(), width=200)
    console.print(report(replace(found, running=(other,))))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_unsettled_ties_are_reported(found: PlanResult) -> None:
    assert "may exist" not in printed(found)
    assert "A smaller plan of the same value may exist" in printed(found, ties_settled=False)


@pytest.mark.parametrize(("relaxation", "beyond"), [(3.0, "200.0% more"), (1.0, "0.0% more")])
def test_the_gain_of_fractional_replicas_is_relative_to_the_plan(
    found: PlanResult, relaxation: float, beyond: str
) -> None:
    value = found.running[0].plan.value

    assert f"({beyond})" in printed(found, relaxation=relaxation * value)


def test_an_unproven_plan_is_reported_with_its_bound(found: PlanResult) -> None:
    assert "the optimum is at most 0.5 requests/s" in printed(found, proven=False, bound=0.5)
