"""Replicas for missed targets: those of the executor that causes most of the missed time, within the GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from cornserve_policies.autoscaling import ReplicaChange, RunningReplicas
from cornserve_policies.target_scaling import ScaledStage, TargetScaling

LONG_AGO = -1000.0


def stage(
    replicas: int, *, most: int = 64, utilization: float = 0.5, gpus: int = 0, gpu_type: str | None = None
) -> ScaledStage:
    return ScaledStage(RunningReplicas(replicas, LONG_AGO), most, utilization, gpus, gpu_type)


def numbers(changes: Mapping[str, ReplicaChange]) -> dict[str, int]:
    return {name: change.replicas for name, change in changes.items()}


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


FULL = {"encoder": stage(2, utilization=2.0, gpus=1), "llm": stage(3, utilization=0.9, gpus=2)}
"""Executors that have all GPUs."""

MORE_IMAGES = {"encoder": ReplicaChange(4, "many images"), "llm": ReplicaChange(1, "few texts")}


def test_more_replicas_start_only_on_free_gpus() -> None:
    larger = {"encoder": ReplicaChange(8, "many images"), "llm": ReplicaChange(5, "many texts")}
    met = scaling(0, {})

    assert met.decide(FULL, larger, 0.0, 60.0, {None: 0}) == {}
    assert met.decide(FULL, larger, 0.0, 60.0, {None: -3}) == {}
    assert numbers(met.decide(FULL, larger, 0.0, 60.0, {None: 1})) == {"encoder": 3}
    assert numbers(met.decide(FULL, larger, 0.0, 60.0, {None: 6})) == {"encoder": 6, "llm": 4}
    assert numbers(met.decide(FULL, larger, 0.0, 60.0)) == {"encoder": 8, "llm": 5}


def test_an_executor_without_gpus_grows_whatever_is_free() -> None:
    stages = FULL | {"resize": stage(1)}
    larger = {"resize": ReplicaChange(3, "many images")}

    assert scaling(0, {}).decide(stages, larger, 0.0, 60.0, {None: -3}) == larger


def test_surplus_replicas_leave_their_gpus_to_others_while_a_target_is_missed() -> None:
    changes = scaling(40, {"encoder": 1}).decide(FULL, MORE_IMAGES, 0.0, 60.0, {None: 0})

    assert changes == {"encoder": ReplicaChange(4, "many images"), "llm": ReplicaChange(2, "few texts")}


def test_surplus_replicas_stay_while_a_target_is_missed_and_gpus_are_free() -> None:
    assert numbers(scaling(40, {"encoder": 1}).decide(FULL, MORE_IMAGES, 0.0, 60.0, {None: 2})) == {"encoder": 4}


def test_the_executor_that_causes_the_missed_time_gets_the_gpus_of_surplus_replicas() -> None:
    fewer = {"llm": ReplicaChange(1, "few texts")}

    changes = scaling(40, {"encoder": 9_000_000}).decide(FULL, fewer, 0.0, 60.0, {None: 0})

    assert numbers(changes) == {"encoder": 3, "llm": 2}


def test_surplus_replicas_stay_if_their_gpus_are_too_few() -> None:
    stages = {"encoder": stage(2, gpus=1), "llm": stage(1, gpus=4)}
    changes = {"encoder": ReplicaChange(1, "few images"), "llm": ReplicaChange(2, "many texts")}

    assert scaling(40, {"llm": 1}).decide(stages, changes, 0.0, 60.0, {None: 2}) == {}


def test_gpus_of_one_type_are_not_those_of_another() -> None:
    stages = {"encoder": stage(2, gpus=1, gpu_type="l4"), "llm": stage(3, gpus=2, gpu_type="h100")}

    assert scaling(40, {"encoder": 1}).decide(stages, MORE_IMAGES, 0.0, 60.0, {"l4": 0, "h100": 2}) == {}
    assert numbers(scaling(0, {}).decide(stages, MORE_IMAGES, 0.0, 60.0, {"l4": 1, "h100": 0})) == {
        "encoder": 3,
        "llm": 1,
    }


def test_a_replica_for_a_missed_target_stays_for_some_time() -> None:
    """Otherwise, two executors whose capacities are set too high would take it from each other every minute."""
    fewer = {"encoder": ReplicaChange(1, "few images"), "llm": ReplicaChange(1, "few texts")}
    rule = scaling(40, {"encoder": 9_000_000})
    assert numbers(rule.decide(FULL, fewer, 0.0, 60.0, {None: 0})) == {"encoder": 3, "llm": 2}
    stages = {
        "encoder": ScaledStage(RunningReplicas(3, 60.0), 64, 0.5, 1),
        "llm": ScaledStage(RunningReplicas(2, 60.0), 64, 0.5, 2),
    }

    for now in (120.0, 180.0):
        rule.add({"ttft": 60}, {"ttft": 40}, {"llm": 9_000_000}, now)

    assert rule.decide(stages, {"encoder": fewer["encoder"]}, 60.0, 180.0, {None: 1}) == {}
