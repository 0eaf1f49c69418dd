"""What is printed of a plan, where its problem is not at hand to show it by."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from cornserve_planner.deployment_plan import InstanceGroup
from cornserve_planner.planning import PlanRequest, PlanResult, make_plan
from cornserve_planner.report import report


@pytest.fixture(scope="module")
def found() -> PlanResult:
    return make_plan(PlanRequest("qwen-image", gpus=2, whole=True))


def printed(found: PlanResult, **changes: object) -> str:
    """With another plan."""
    (entry,) = found.deployment.instances
    other = InstanceGroup(count=1, plan=entry.plan.model_copy(update=changes))
    console = Console(file=StringIO(), width=200)
    console.print(report(replace(found, deployment=found.deployment.model_copy(update={"instances": (other,)}))))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_ties_are_mentioned_where_they_were_not_settled(found: PlanResult) -> None:
    assert "may exist" not in printed(found)
    assert "A plan with fewer GPUs or kinds of executors may exist" in printed(found, ties_settled=False)


@pytest.mark.parametrize(("relaxation", "beyond"), [(3.0, "200.0% more"), (1.0, "0.0% more")])
def test_what_fractions_of_replicas_would_bring_is_told_of_what_the_plan_does(
    found: PlanResult, relaxation: float, beyond: str
) -> None:
    value = found.deployment.instances[0].plan.value

    assert f"({beyond})" in printed(found, relaxation=relaxation * value)


def test_a_plan_that_is_not_proven_tells_how_good_it_is_known_to_be(found: PlanResult) -> None:
    assert "the optimum is at most 0.5 requests/s" in printed(found, proven=False, bound=0.5)
