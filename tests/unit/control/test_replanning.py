"""Apps whose mix shifts get another plan, with made arrivals, made plans and a made clock."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.app.adaptation_status import PlanProposal
from cornserve.app.graph import GraphOption, GraphStep
from cornserve.app.plan import AppPlan
from cornserve.app.planning import PlanningInputs, WorkloadType
from cornserve.app.scale import ScaleError
from cornserve.control.planning.job import PlanningResult
from cornserve.control.planning.planner_process import PlannerProcessError
from cornserve.control.store.base import APPS, Store
from cornserve_plan.plan import PlanPath, PlanStep, PlanType
from tests.unit.app.plans import cell, plan
from tests.unit.control.adapting_app import STEP, AdaptingApp, adapting, mixture

SHIFTED = {"text": 0.75, "images": 0.25}

PLANNING = PlanningInputs(
    gpus=4,
    workload={
        "text": WorkloadType(components=["llm"], share=0.25),
        "images": WorkloadType(components=["encoder", "llm"], share=0.75, sizes={"images": 1.0}),
    },
    profile={"format": "cornserve-planner/profile"},
)

FAST: dict[str, Any] = {"window_seconds": 5, "dwell_seconds": 20, "shrink_seconds": 60}


def plan_for(text: float, rate: float = 30.0, gpus: int = 4) -> AppPlan:
    """Returns a plan for a share of texts, on a cell that differs from those of `mixture`."""
    planned = plan(cell(gpus, {"E": 1, "L": gpus - 1, "EL": 1}, count=1, rate=rate))
    types = {
        name: kind.model_copy(update={"share": share})
        for (name, kind), share in zip(planned.types.items(), (text, 1 - text), strict=True)
    }
    return planned.model_copy(update={"types": types})


async def planned_app(store: Store, **settings: Any) -> AdaptingApp:
    return await adapting(store, mixture(0, 1), planning=PLANNING, **FAST, **settings)


async def test_a_better_plan_for_the_shifted_mix_replaces_the_running_one(store: Store) -> None:
    app = await planned_app(store)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=20.0)]
    await app.run(16, 120)
    assert app.replanning.jobs == []

    await app.run(16, 120, SHIFTED)

    [job] = app.replanning.jobs
    assert job.running == mixture(0, 1)
    assert job.inputs.gpus == 4
    assert job.inputs.profile == PLANNING.profile
    assert job.inputs.workload["text"].share == pytest.approx(0.75, abs=0.1)
    assert job.inputs.workload["images"].sizes == {"images": 1.0}
    assert await app.plan() == plan_for(text=0.75)
    assert [reason for reason, _ in app.observer.events] == ["MixShifted", "Adapted"]
    message = app.observer.events[-1][1]
    assert (
        "of the requests have another type than planned, and the running cells serve 20 requests/s of this" in message
    )
    assert "runs 1 × 4 GPUs (5 GPUs, 30 requests/s) instead of 1 × 4 GPUs (4 GPUs, 20 requests/s)" in message
    assert app.metric("adaptations_total", {"app": "caption"}) == 1

    await app.run(16, 600, SHIFTED)
    assert len(app.replanning.jobs) == 1
    assert not app.has_findings


DRAW = GraphOption(executor="draw", task="StageTask", settings={}, components=("draw",), gpus=1)


def drawing(kind: PlanType) -> PlanType:
    """Returns the type with a drawing at the end of each path."""
    paths = tuple(
        PlanPath(steps=(*path.steps, PlanStep(option=path.steps[-1].option, components=("draw",))))
        for path in kind.paths
    )
    return kind.model_copy(update={"components": (*kind.components, "draw"), "paths": paths})


async def test_another_plan_is_made_for_the_observed_frequency_of_components_that_follow_a_value(store: Store) -> None:
    running = mixture(0, 1)
    types = {name: drawing(kind) for name, kind in running.types.items()}
    workload = {
        name: kind.model_copy(update={"components": [*kind.components, "draw"], "frequency": {"draw": 0.1}})
        for name, kind in PLANNING.workload.items()
    }
    planning = PLANNING.model_copy(update={"workload": workload})
    app = await adapting(store, running.model_copy(update={"types": types}), planning=planning, **FAST)
    known = app.replanning.graph
    paths = tuple(
        path.model_copy(update={"conditional": (GraphStep(option="D", components=("draw",)),)}) for path in known.paths
    )
    app.replanning.graph = known.model_copy(update={"options": known.options | {"D": DRAW}, "paths": paths})
    app.replanning.results = [PlanningResult(error="not needed")]
    app.invocations = {"text": {"L": 1.0, "D": 0.5}, "images": {"L": 1.0, "D": 0.1}}

    await app.run(16, 120)
    while not app.replanning.jobs:
        await app.run(16, STEP, SHIFTED)

    frequency = {name: kind.frequency for name, kind in app.replanning.jobs[0].inputs.workload.items()}
    assert frequency["text"]["draw"] == pytest.approx(0.5, abs=0.05)
    assert frequency["images"] == {"draw": 0.1}  # Chance explains the difference.


async def test_a_plan_without_a_notable_benefit_is_not_applied_or_made_again(store: Store) -> None:
    app = await planned_app(store)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75, rate=20.5), running_rate=20.0)]

    await app.run(16, 120)
    await app.run(16, 900, SHIFTED)

    assert len(app.replanning.jobs) == 1
    assert await app.plan() == mixture(0, 1)
    status = app.driver.status("caption")
    assert status is not None
    assert status.mix_shift is not None


async def test_a_plan_that_needs_limits_without_which_the_engines_run_is_not_applied(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def with_engine(made: AppPlan) -> AppPlan:
        engine = made.options["L"].model_copy(update={"task": "LLMTask"})
        return made.model_copy(update={"options": {**made.options, "L": engine}})

    app = await adapting(store, with_engine(mixture(0, 1)), planning=PLANNING, **FAST)
    limits = {"L": {"max_num_seqs": 8}}
    app.replanning.results = [
        PlanningResult(plan=with_engine(plan_for(text=0.75)), step_limits=limits, running_rate=20.0)
    ]
    await app.run(16, 120)

    await app.run(16, 200, SHIFTED)

    assert await app.plan() == with_engine(mixture(0, 1))
    assert "needs limits of steps: deploy the app with max_num_seqs=8 of L" in caplog.text


async def test_another_plan_waits_for_an_approval(store: Store) -> None:
    app = await planned_app(store, approval=True)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=12.0)]
    await app.run(16, 120)
    await app.run(16, 120, SHIFTED)

    assert await app.plan() == mixture(0, 1)
    adaptation = (await store.get(APPS, "caption")).status.adaptation
    assert adaptation is not None
    proposal = adaptation.plan_proposal
    assert proposal is not None
    assert (proposal.gpus_now, proposal.gpus, proposal.rate_now, proposal.rate) == (4, 5, 12.0, 30.0)
    assert (proposal.starts, proposal.stops) == (5, 4)
    assert [reason for reason, _ in app.observer.events] == ["MixShifted", "AdaptationProposed"]

    await app.approve()
    assert await app.plan() == plan_for(text=0.75)
    assert not app.has_findings


async def test_a_proposal_ends_with_the_shift(store: Store) -> None:
    app = await planned_app(store, approval=True)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=12.0)]
    await app.run(16, 120)
    await app.run(16, 120, SHIFTED)
    assert app.has_findings

    await app.run(16, 300)

    assert not app.has_findings


@pytest.mark.parametrize("error", [PlannerProcessError("killed"), PlanningResult(error="infeasible")])
async def test_a_planner_that_fails_changes_nothing(store: Store, error: PlanningResult | Exception) -> None:
    app = await planned_app(store)
    app.replanning.results = [error] * 100
    await app.run(16, 120)

    await app.run(16, 200, SHIFTED)

    assert 1 <= len(app.replanning.jobs) <= 10  # at most one in each dwell time
    assert await app.plan() == mixture(0, 1)


async def test_a_planner_ends_when_the_driver_ends(store: Store) -> None:
    app = await planned_app(store)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=20.0)]
    app.replanning.may_finish.clear()
    await app.run(16, 120)
    await app.run(16, 120, SHIFTED)
    assert app.replanning.running == 1

    await app.replanning.close()

    assert app.replanning.running == 0


@pytest.mark.parametrize("approval", [False, True])
async def test_a_plan_that_does_not_fit_is_proposed_with_the_reason_until_it_fits(store: Store, approval: bool) -> None:
    app = await planned_app(store, approval=approval)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75), running_rate=12.0)]
    app.fits = lambda planned: planned.gpus <= 4
    await app.run(16, 120)

    await app.run(16, 200, SHIFTED)

    assert await app.plan() == mixture(0, 1)
    status = app.driver.status("caption")
    assert status is not None
    assert status.plan_proposal is not None
    assert status.plan_proposal.obstacle == "too large"
    reason, message = app.observer.events[-1]
    assert reason == "AdaptationProposed"
    assert message.endswith("cannot replace the running cells: too large")
    with pytest.raises(ScaleError, match="the plan cannot replace the running one: too large"):
        await app.approve()

    app.fits = lambda planned: True
    await app.run(16, STEP, SHIFTED)
    if approval:
        await app.approve()
    assert await app.plan() == plan_for(text=0.75)


async def counts_of_changes(app: AdaptingApp, rate: float) -> list[dict[int, int]]:
    """Returns the cells that run, one after the other, after a shift of the mix."""
    await app.run(rate, 120)
    found = [(await app.plan()).counts]
    for _ in range(40):
        await app.run(rate, STEP, SHIFTED)
        counts = (await app.plan()).counts
        if counts != found[-1]:
            found.append(counts)
    return found


@pytest.mark.parametrize(
    ("rate", "changes"),
    [
        (16, [{4: 3}, {4: 2}, {5: 1}]),
        (30, [{4: 3}]),  # two cells serve 24 requests/s of this mix
    ],
)
async def test_cells_that_the_load_does_not_need_end_before_another_plan_starts(
    store: Store, rate: float, changes: list[dict[int, int]]
) -> None:
    app = await adapting(store, mixture(0, 3), planning=PLANNING, min_rate=60.0, **FAST)
    better = plan_for(text=0.75, rate=80.0, gpus=5)
    app.replanning.results = [PlanningResult(plan=better, running_rate=36.0)]
    app.find_obstacle = lambda planned, kept: None if planned.gpus + kept.gpus <= 14 else "both need more than 14"

    assert await counts_of_changes(app, rate) == changes
    status = app.driver.status("caption")
    assert status is not None
    assert (status.plan_proposal is None) == (len(changes) > 1)


async def test_another_plan_follows_only_in_the_dwell_time(store: Store) -> None:
    app = await adapting(store, mixture(0, 3), planning=PLANNING, min_rate=60.0, **FAST)
    app.replanning.results = [PlanningResult(plan=plan_for(text=0.75, rate=80.0, gpus=5), running_rate=36.0)] * 2
    app.find_obstacle = lambda planned, kept: None if planned.gpus + kept.gpus <= 14 else "both need more than 14"
    await app.run(16, 120)
    while (await app.plan()).counts == {4: 3}:
        await app.run(16, STEP, SHIFTED)
    app.find_obstacle = lambda planned, kept: None if 5 not in planned.counts else "slots are not free"

    await app.run(55, 100, SHIFTED)

    assert (await app.plan()).counts == {4: 3}


async def test_an_app_without_inputs_is_not_planned(store: Store) -> None:
    app = await adapting(store, mixture(0, 1), **FAST)

    await app.run(16, 120)
    await app.run(16, 300, SHIFTED)

    assert app.replanning.jobs == []


def test_the_cost_of_a_plan_is_what_starts_and_stops() -> None:
    running = plan(cell(2, {"EL": 2}, count=2), cell(4, {"E": 1, "L": 3}, count=1))
    changed = plan(cell(2, {"EL": 2}, count=1), cell(4, {"E": 2, "L": 2}, count=1))

    proposal = PlanProposal.of(1, running, changed, 1.0, "shifted")

    assert (proposal.starts, proposal.stops) == (4, 6)
