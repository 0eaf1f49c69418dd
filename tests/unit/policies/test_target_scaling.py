"""Replicas for missed targets: those of the executor that causes most of the missed time, while no replica stops."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve_policies.autoscaling import ReplicaChange, RunningReplicas
from cornserve_policies.target_scaling import ScaledStage, TargetScaling

LONG_AGO = -1000.0


def stage(replicas: int, *, most: int = 64, utilization: float = 0.5) -> ScaledStage:
    return ScaledStage(RunningReplicas(replicas, LONG_AGO), most, utilization)


def scaling(missed: int, late_us: Mapping[str, int]) -> TargetScaling:
    """Returns the rule after a minute with 100 requests."""
    rule = TargetScaling(60.0, 900.0, 60.0, 0.0)
    rule.add({"ttft": 100 - missed}, {"ttft": missed}, late_us, 60.0)
    return rule


STAGES = {"encoder": stage(2), "llm": stage(3)}


def test_the_executor_with_most_of_the_missed_time_gets_a_replica() -> None:
    changes = scaling(40, {"encoder": 9_000_000, "llm": 1_000_000}).decide(STAGES, {}, 0.0, 60.0)
    assert changes == {
        "encoder": ReplicaChange(
            3, "60% of 100 requests met the ttft target in 60 s, not 95%, and encoder causes 90% of the missed time"
        )
    }


def test_nothing_changes_while_enough_requests_meet_the_target() -> None:
    assert scaling(6, {"encoder": 9_000_000}).decide(STAGES, {}, 0.0, 60.0) == {}


def test_without_missed_time_the_busiest_executor_that_may_grow_gets_it() -> None:
    stages = {"encoder": stage(2, utilization=0.9), "llm": stage(3, most=3, utilization=1.2)}
    assert [*scaling(40, {}).decide(stages, {}, 0.0, 60.0)] == ["encoder"]


def test_no_other_executor_grows_in_place_of_a_full_one() -> None:
    stages = {"encoder": stage(2, most=2), "llm": stage(3)}
    assert scaling(40, {"encoder": 9_000_000}).decide(stages, {}, 0.0, 60.0) == {}


def test_replicas_stop_only_after_all_targets_are_met_for_some_time() -> None:
    fewer = {"llm": ReplicaChange(1, "a low load")}
    rule = scaling(40, {"encoder": 1})
    assert [*rule.decide(STAGES, fewer, 0.0, 60.0)] == ["encoder"]
    assert rule.decide(STAGES, fewer, 0.0, 959.0) == {}
    assert rule.decide(STAGES, fewer, 0.0, 960.0) == fewer


def test_requests_before_the_replicas_were_complete_do_not_count() -> None:
    assert scaling(40, {"encoder": 1}).decide(STAGES, {}, 30.0, 60.0) == {}
