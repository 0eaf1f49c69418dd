"""What is printed of a plan, where its problem is not at hand to show it by."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from cornserve_planner.proposal import Instances
from cornserve_planner.report import report
from cornserve_planner.session import Found, Wish, find


@pytest.fixture(scope="module")
def found() -> Found:
    return find(Wish("qwen-image", gpus=2, whole=True))


def printed(found: Found, **changes: object) -> str:
    """With another plan."""
    (entry,) = found.proposal.instances
    other = Instances(count=1, plan=entry.plan.model_copy(update=changes))
    console = Console(file=StringIO(), width=200)
    console.print(report(replace(found, proposal=found.proposal.model_copy(update={"instances": (other,)}))))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_ties_are_mentioned_where_they_were_not_settled(found: Found) -> None:
    assert "ties" not in printed(found)
    assert "Fewer GPUs or kinds of executors may do the same: ties were not" in printed(found, ties_settled=False)


@pytest.mark.parametrize(("relaxation", "beyond"), [(3.0, "200.0% more"), (1.0, "0.0% more")])
def test_what_fractions_of_replicas_would_bring_is_told_of_what_the_plan_does(
    found: Found, relaxation: float, beyond: str
) -> None:
    value = found.proposal.instances[0].plan.value

    assert f"({beyond})" in printed(found, relaxation=relaxation * value)


def test_a_plan_that_is_not_proven_tells_how_good_it_is_known_to_be(found: Found) -> None:
    assert "the best has at most 0.5 requests/s" in printed(found, proven=False, bound=0.5)
