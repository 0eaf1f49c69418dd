"""Plans that a worker process makes."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.planning.planner_process import PlannerProcessError, limit_planners, run_planner
from cornserve.control.planning.served_rate import served_rate
from cornserve.control.planning.worker import make_plan
from cornserve_planner.goodput import replay
from tests.unit.app.plans import cell, graph, plan

RATES = {"E": 50.0, "L": 20.0, "EL": 12.0}
"""Requests per second of a replica."""


def inputs(**fields: Any) -> PlanningInputs:
    entries = [
        {
            "option": option,
            "gpu": "L4",
            "throughput": [{"rate": {"value": rate, "unit": "requests/s", "tag": "measured", "source": "a test"}}],
        }
        for option, rate in RATES.items()
    ]
    profile = {"format": "cornserve-planner/profile", "version": 1, "model": "caption", "options": entries}
    workload = {
        "text": {"components": ["llm"], "share": 1 / 3},
        "images": {"components": ["encoder", "llm"], "share": 0.6667},
    }
    return PlanningInputs.model_validate({"gpus": 4, "workload": workload, "profile": profile} | fields)


async def test_a_process_makes_a_plan_and_computes_the_rate_of_the_running_one() -> None:
    first = await run_planner(PlanningJob(app="caption", graph=graph(), inputs=inputs()))
    assert first.plan is not None
    assert first.plan.counts == {4: 1}
    assert first.running_rate is None

    again = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs(), running=first.plan))
    assert again.plan is not None
    assert again.running_rate == pytest.approx(first.plan.rate)

    mix = inputs(gpus=8).with_mix(first.plan, {"text": 0.95, "images": 0.05})
    assert (mix.gpus, mix.rate) == (4, None)  # Users have scaled the app.
    shifted = make_plan(PlanningJob(app="caption", graph=graph(), inputs=mix, running=first.plan))
    assert shifted.plan is not None
    assert shifted.running_rate is not None
    assert shifted.plan.rate > 1.05 * shifted.running_rate


def test_a_plan_has_a_path_for_a_type_that_its_workload_lacks() -> None:
    workload = {"text": {"components": ["llm"], "share": 1.0}}
    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs(workload=workload)))

    assert result.plan is not None
    assert {name: set(kind.components) for name, kind in result.plan.types.items()} == {
        "text": {"llm"},
        "encoder+llm": {"encoder", "llm"},
    }
    assert all(cell.probabilities.keys() == {"text", "encoder+llm"} for cell in result.plan.cells)
    assert result.plan.rate > 0.5 * 4 * RATES["L"]


def inputs_with_latency(**fields: Any) -> PlanningInputs:
    known = inputs(**fields).model_dump()
    for entry in known["profile"]["options"]:
        seconds = [1 / RATES[entry["option"]]]
        entry["latency"] = [{"batch": [1], "seconds": seconds, "tag": "measured", "source": "a test"}]
    return PlanningInputs.model_validate(known)


@pytest.fixture
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for latency targets simulate few requests."""
    monkeypatch.setattr(replay, "MOST_REQUESTS", 1000)


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize(
    ("fields", "targets"),
    [
        ({"utilization": 0.4}, None),
        ({"survive": True}, None),
        ({}, LatencyTargetSettings(end_to_end_seconds=0.1)),
        ({"percentile": 99.0}, LatencyTargetSettings(ttft_seconds=0.1)),
    ],
)
def test_targets_of_an_app_limit_its_plan(fields: dict[str, Any], targets: LatencyTargetSettings | None) -> None:
    free = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs_with_latency()))
    limited = make_plan(
        PlanningJob(app="caption", graph=graph(), inputs=inputs_with_latency(**fields), targets=targets)
    )

    assert free.plan is not None
    assert limited.plan is not None
    assert limited.plan.rate < 0.95 * free.plan.rate


@pytest.mark.usefixtures("few_requests")
def test_a_shifted_mix_is_planned_again_by_simulations() -> None:
    targets = LatencyTargetSettings(end_to_end_seconds=0.3)

    def made(text: float, running: AppPlan | None = None) -> PlanningResult:
        shares = {"text": (["llm"], text), "images": (["encoder", "llm"], 1 - text)}
        workload = {name: {"components": each, "share": share} for name, (each, share) in shares.items()}
        given = inputs_with_latency(workload=workload)
        return make_plan(PlanningJob(app="caption", graph=graph(), inputs=given, targets=targets, running=running))

    before = made(text=0.99)
    same, shifted = made(text=0.99, running=before.plan), made(text=0.01, running=before.plan)

    assert before.plan is not None
    assert shifted.plan is not None
    assert same.running_rate == pytest.approx(before.plan.rate, rel=0.1)
    assert shifted.running_rate is not None
    assert shifted.running_rate < 0.9 * shifted.plan.rate


@pytest.mark.parametrize("has_profile", [True, False])
def test_a_target_that_was_not_measured_is_refused(has_profile: bool) -> None:
    targets = LatencyTargetSettings(tbt_seconds=0.05)
    given = inputs_with_latency() if has_profile else inputs(profile=None)

    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=given, targets=targets))

    assert result.plan is None
    assert "measured" in result.error if not has_profile else "latency between tokens" in result.error


def test_other_targets_lead_to_another_plan() -> None:
    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs()))
    assert result.plan is not None
    spec = AppSpec(model=AppModel(id="a/b"), planning=inputs())
    made = spec.changed(plan=result.plan.model_copy(update={"planned_from": spec.planning_digest}))

    def with_targets(**targets: Any) -> AppSpec:
        return made.changed(policies=AppPolicies(targets=LatencyTargetSettings(**targets)))

    assert not made.needs_plan
    assert with_targets(ttft_seconds=1).needs_plan
    assert with_targets(ttft_seconds=1).planning_digest == with_targets(ttft_seconds=1, admission=True).planning_digest


def test_a_plan_for_gpus_of_a_type_uses_at_most_their_number() -> None:
    fields = {"gpus": None, "gpus_of": {"L4": 4}, "gpu_types": dict.fromkeys(RATES, "L4")}
    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs(**fields)))

    assert result.plan is not None
    assert result.plan.gpus_of == {"L4": 4}
    more = result.plan.with_counts({4: 2}, target=None)
    assert inputs(**fields).with_mix(more, {"text": 1.0}).gpus_of == {"L4": 8}


@pytest.mark.parametrize("objective", ["gpus", "dollars"])
def test_a_plan_for_a_rate_minimizes_the_objective_on_the_given_types(objective: str) -> None:
    fields = {"gpus": None, "rate": 30.0, "objective": objective, "gpu_types": dict.fromkeys(RATES, "L4")}

    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs(**fields)))

    assert result.plan is not None, result.error
    assert result.plan.rate >= 30
    assert {option.gpu_type for option in result.plan.options.values()} == {"L4"}


def test_a_plan_counts_the_gpus_of_executors_that_state_none() -> None:
    given = inputs()
    assert given.profile is not None
    entries: Any = given.profile["options"]
    profile = given.profile | {"options": [entry | {"gpus": 2} for entry in entries]}
    fields = {"gpu_counts": dict.fromkeys(RATES, 2), "profile": profile}

    result = make_plan(PlanningJob(app="caption", graph=graph(), inputs=inputs(**fields)))

    assert result.plan is not None, result.error
    assert result.plan.gpus == 4
    assert {option.gpus for option in result.plan.options.values()} == {2}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("other", {}, "the profile is for 'caption', but the model is 'other'"),
        ("caption", {"workload": {"sounds": {"components": ["speech"], "share": 1}}}, "speech"),
        (
            "caption",
            {"workload": {"text": {"components": ["llm"], "share": 1, "frequency": {"llm": 0.5}}}},
            "planning.workload.text.frequency: every request of the type runs llm: remove it",
        ),
        ("caption", {"gpu_types": {"X": "L4"}}, "options.X: is not an option of caption: use one of EL, E, L"),
        ("caption", {"gpu_types": {"E": "T4"}}, "T4"),
        ("caption", {"profile": {"format": "cornserve-planner/profile"}}, "profile.json: version: is missing"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(name: str, fields: dict[str, Any], message: str) -> None:
    result = make_plan(PlanningJob(app=name, graph=graph(), inputs=inputs(**fields)))

    assert result.plan is None
    assert message in result.error


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ""),
        (
            {"workload": {"sounds": {"components": ["speech"], "share": 1}}},
            "planning.workload.sounds: needs speech, but no request of caption does: its types are llm, encoder+llm",
        ),
    ],
)
async def test_inputs_without_a_profile_are_only_checked(fields: dict[str, Any], message: str) -> None:
    job = PlanningJob(app="caption", graph=graph(), inputs=inputs(**{"profile": None} | fields))

    assert await run_planner(job) == PlanningResult(error=message)


async def test_a_limited_planner_makes_few_plans_at_a_time() -> None:
    running, most = 0, 0

    async def make(job: PlanningJob) -> PlanningResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return PlanningResult(error=job.app)

    planner = limit_planners(make, most=2)
    jobs = [PlanningJob(app=name, graph=graph(), inputs=inputs()) for name in "abcde"]

    assert [result.error for result in await asyncio.gather(*map(planner, jobs))] == list("abcde")
    assert most == 2


async def test_a_process_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(PlannerProcessError, match="the planner exited with code 1"):
        await run_planner(PlanningJob(app="caption", graph=graph(), inputs=inputs()))


def test_the_first_option_that_is_fully_used_limits_the_rate() -> None:
    running = plan(cell(1, {"EL": 1}, count=1, rate=10.0), cell(3, {"E": 1, "L": 2}, count=1, rate=30.0))
    text, images = frozenset({"llm"}), frozenset({"encoder", "llm"})
    seconds = {
        (text, "EL", text): 0.05,
        (images, "EL", images): 0.1,
        (text, "L", text): 0.05,
        (images, "L", text): 0.05,
        (images, "E", frozenset({"encoder"})): 0.04,
    }

    # A quarter of the requests reaches the small cell, whose replica needs 0.075 s for each on average.
    assert served_rate(running, {"text": 0.5, "images": 0.5}, seconds) == pytest.approx(4 / 0.075)
    assert served_rate(running, {"text": 1.0, "images": 0.0}, seconds) == pytest.approx(2 / (0.75 * 0.05))
    assert served_rate(running, {"text": 0.5, "images": 0.5}, {}) is None
