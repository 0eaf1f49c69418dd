"""Apps that adapt to their load, with made arrivals and a made clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from cornserve.app.adaptation_status import AdaptationStatus, CellCount, MixtureProposal, TypeShare
from cornserve.app.plan import AppPlan
from cornserve.app.record import AppStatus, FailureReason, Phase
from cornserve.app.scale import Scale, scaled_spec
from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.control.adaptation.arrival_reader import Arrivals
from cornserve.control.adaptation.served_plan import with_served_plan
from cornserve.control.store.base import APPS, AppRecord, Record, Store
from tests.unit.control.adapting_app import MIX, START, STEP, AdaptingApp, adapting, mixture
from tests.waiting import until


@pytest.mark.slow
async def test_an_hour_of_noise_changes_nothing(store: Store) -> None:
    app = await adapting(store, mixture(1, 1))

    await app.run(22, 3600)

    assert (await store.get(APPS, "caption")).generation == 1
    assert not app.has_findings
    assert app.observer.events == []


async def test_cells_follow_a_load_that_doubles_and_halves(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    await app.run(18, 1200)
    assert (await app.plan()).counts == {4: 1}

    await app.run(36, 100)
    doubled = await app.plan()
    assert doubled.rate >= 36
    assert doubled.gpus == 8
    assert doubled.target is not None
    assert doubled.target == pytest.approx(36, rel=0.25)

    await app.run(18, 1200)
    halved = await app.plan()
    assert 18 <= halved.rate <= 28
    assert app.metric("adaptations_total", {"app": "caption"}) == len(app.observer.events) >= 2
    reason, message = app.observer.events[0]
    assert reason == "Adapted"
    assert "requests/s arrived in 20 s, and the running cells serve 20: runs " in message
    assert "instead of 1 × 4 GPUs (4 GPUs, 20 requests/s)" in message


async def test_an_app_without_requests_keeps_its_smallest_cell(store: Store) -> None:
    app = await adapting(store, mixture(0, 2))

    await app.run(0, 1000)

    assert (await app.plan()).counts == {1: 1}


async def test_rates_are_exported_by_type(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))

    await app.run(16, 600)

    status = (await store.get(APPS, "caption")).status.adaptation
    assert status is not None
    assert {rate.type: rate.planned for rate in status.rates} == {name: 20 * share for name, share in MIX.items()}
    for name, share in MIX.items():
        [observed] = [rate.observed for rate in status.rates if rate.type == name]
        assert observed == pytest.approx(16 * share, abs=4)
        labels = {"app": "caption", "type": name}
        assert app.metric("planned_requests_per_second", labels) == 20 * share
        assert app.metric("arriving_requests_per_second", labels) == pytest.approx(16 * share, rel=0.5)
    await store.delete(APPS, "caption")
    app.driver.update({})
    assert app.metric("planned_requests_per_second", {"app": "caption", "type": "text"}) is None


async def test_the_rates_of_an_app_that_does_not_adapt_are_observed(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    await app.update_spec((await store.get(APPS, "caption")).spec.changed(policies=AppPolicies()))

    await app.run(40, 50)
    assert app.driver.status("caption") is None

    await app.run(40, 550)
    status = app.driver.status("caption")
    assert status is not None
    assert sum(rate.observed for rate in status.rates) == pytest.approx(40, rel=0.2)
    assert app.metric("arriving_requests_per_second", {"app": "caption", "type": "text"}) == pytest.approx(10, rel=0.5)
    assert (await app.plan()).counts == {4: 1}


async def test_more_cells_that_users_have_started_hold_for_a_time(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    await app.run(16, 1200)

    await app.scale(rate=36.0)
    assert (await store.get(APPS, "caption")).spec.held_until == app.time + timedelta(seconds=900)
    await app.run(16, 895)
    assert (await app.plan()).counts == {4: 2}

    await app.run(16, 60)
    assert (await app.plan()).rate < 40
    assert (await store.get(APPS, "caption")).spec.held_until is None


async def test_fewer_cells_that_users_have_left_hold_for_a_time(store: Store) -> None:
    app = await adapting(store, mixture(0, 2), hold_seconds=300)
    await app.run(34, 600)

    await app.scale(gpus=4)
    await app.run(34, 295)
    assert (await app.plan()).counts == {4: 1}

    await app.run(34, 60)
    assert (await app.plan()).rate > 30


async def test_users_change_and_end_the_time_for_which_their_size_holds(store: Store) -> None:
    app = await adapting(store, mixture(0, 2))
    await app.run(34, 600)
    await app.scale(gpus=4, hold_seconds=1800)
    await app.run(34, 1200)
    assert (await app.plan()).counts == {4: 1}

    await app.scale(hold_seconds=0)

    await app.run(34, 60)
    assert (await app.plan()).rate > 30


async def test_the_load_before_a_change_by_users_does_not_count(store: Store) -> None:
    app = await adapting(store, mixture(0, 1), hold_seconds=0)
    await app.run(36, 300)
    assert (await app.plan()).counts == {4: 2}
    await app.scale(gpus=4)
    await app.run(16, 1200)

    await app.scale(gpus=8)
    await app.run(16, 895)
    assert (await app.plan()).counts == {4: 2}

    await app.run(16, 60)
    assert (await app.plan()).rate < 40


async def test_changes_that_wait_for_an_approval_are_not_proposed_while_the_size_holds(store: Store) -> None:
    app = await adapting(store, mixture(0, 2), approval=True)
    await app.run(34, 600)

    await app.scale(gpus=4)
    await app.run(34, 895)
    assert not app.has_findings

    await app.run(34, 60)
    assert app.has_findings


async def test_a_size_that_could_not_start_does_not_hold(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    app.served = (await store.get(APPS, "caption")).spec
    app.failures[2] = FailureReason.INSUFFICIENT_CAPACITY
    await app.scale(rate=36.0)

    await app.run(0, 1000)

    assert (await app.plan()).counts == {1: 1}


async def test_a_change_waits_for_an_approval(store: Store) -> None:
    app = await adapting(store, mixture(0, 1), approval=True)
    await app.run(18, 300)

    await app.run(34, 300)

    assert (await app.plan()).counts == {4: 1}
    status = (await store.get(APPS, "caption")).status.adaptation
    assert status is not None
    proposal = status.proposal
    assert proposal is not None
    assert (proposal.generation, proposal.gpus_now, proposal.gpus) == (1, 4, 8)
    assert proposal.cells == [CellCount(gpus=4, count=2)]
    assert (proposal.rate_now, proposal.rate) == (20, 40)
    assert "requests/s arrived" in proposal.reason
    assert [reason for reason, _ in app.observer.events] == ["AdaptationProposed"]

    await app.approve()
    await app.control()
    assert (await app.plan()).counts == {4: 2}
    assert not app.has_findings


async def test_a_proposal_ends_with_its_load(store: Store) -> None:
    app = await adapting(store, mixture(0, 1), approval=True)
    await app.run(34, 300)
    assert app.has_findings

    await app.run(18, 400)

    assert not app.has_findings


async def test_a_shift_of_the_mix_is_reported_until_it_ends(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    shifted = {"text": 0.75, "images": 0.15, "": 0.1}

    await app.run(16, 1800, shifted)

    status = app.driver.status("caption")
    assert status is not None
    assert status.mix_shift is not None
    assert status.mix_shift.distance == pytest.approx(0.6, abs=0.05)
    assert [each.type for each in status.mix_shift.shares] == ["", "images", "text"]
    assert status.mix_shift.shares[2] == TypeShare(
        type="text", planned=0.25, observed=status.mix_shift.shares[2].observed
    )
    assert [reason for reason, _ in app.observer.events] == ["MixShifted"]
    assert (await app.plan()).counts == {4: 1}

    await app.run(16, 1800)
    assert not app.has_findings


@pytest.mark.parametrize(("gpus", "counts"), [(4, {4: 1}), (6, {1: 2, 4: 1}), (9, {1: 1, 4: 2})])
async def test_only_cells_that_fit_are_added(store: Store, gpus: int, counts: dict[int, int]) -> None:
    app = await adapting(store, mixture(0, 1))
    app.fits = lambda planned: planned.gpus <= gpus
    await app.run(18, 300)

    await app.run(50, 200)

    assert (await app.plan()).counts == counts


async def test_only_the_largest_cells_that_may_fit_are_checked(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    checked: list[int] = []

    def find_obstacle(planned: AppPlan, _: AppPlan) -> str | None:
        checked.append(planned.gpus)
        return None if planned.gpus <= 5 else "too large"

    app.find_obstacle, app.most_gpus = find_obstacle, 6
    await app.run(18, 300)

    await app.run(200, 200)

    assert (await app.plan()).counts == {1: 1, 4: 1}
    assert set(checked) == {5, 6}


async def test_smaller_cells_that_do_not_fit_do_not_exclude_larger_ones(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    app.fits = lambda planned: (
        1 not in planned.counts and planned.gpus <= 8
    )  # slots of the type of small cells are missing
    await app.run(18, 300)

    await app.run(70, 200)

    assert (await app.plan()).counts == {4: 2}


async def test_a_concurrent_change_is_not_overwritten(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    await app.run(18, 300)
    stale = {record.name: record for record in (await store.list(APPS)).records}
    await app.run(36, STEP)
    spec = (await store.get(APPS, "caption")).spec
    await app.update_spec(spec.model_copy(update={"plan": mixture(3, 1)}))

    app.driver.update(stale)
    app.arrivals.next = Arrivals({"caption": {"text": 2000}}, is_complete=True)
    app.now += STEP
    await app.driver.step()

    assert (await app.plan()).counts == {1: 3, 4: 1}


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.FAILED])
async def test_an_app_whose_last_change_is_not_complete_does_not_change(store: Store, phase: Phase) -> None:
    app = await adapting(store, mixture(0, 1))
    app.phase = phase

    await app.run(40, 300)

    assert (await app.plan()).counts == {4: 1}


async def test_an_app_whose_newest_plan_has_failed_adapts_with_the_plan_that_serves(store: Store) -> None:
    app = await adapting(store, mixture(0, 1))
    await app.run(18, 300)
    app.served = (await store.get(APPS, "caption")).spec
    app.failures = {2: FailureReason.INSUFFICIENT_CAPACITY}
    await app.update_spec(app.served.changed(plan=mixture(0, 9)))
    await app.control()

    await app.run(36, 200)

    adapted = await app.plan()
    assert adapted.counts == {4: 2}
    assert (await store.get(APPS, "caption")).generation > 2


def failed_record(reason: FailureReason, **fields: Any) -> AppRecord:
    policies = AppPolicies(adaptation=AdaptationSettings())
    spec = AppSpec.model_validate(
        {"source": {"inline": "app = ..."}, "plan": mixture(0, 9), "policies": policies} | fields
    )
    return Record("caption", "uid", 2, 1, spec, AppStatus(phase=Phase.FAILED, generation=2, reason=reason))


@pytest.mark.parametrize("reason", [FailureReason.INSUFFICIENT_CAPACITY, FailureReason.PLANNING_FAILED])
def test_a_failed_plan_is_replaced_by_the_one_that_serves(reason: FailureReason) -> None:
    record = failed_record(reason)
    served = AppSpec(source=AppSource(inline="app = ..."), plan=mixture(0, 1))

    adapted = with_served_plan(record, served)

    assert adapted.spec.plan == served.plan
    assert adapted.status.phase is Phase.SERVING
    assert (adapted.uid, adapted.generation, adapted.version) == (record.uid, record.generation, record.version)


@pytest.mark.parametrize(
    ("fields", "reason", "served"),
    [
        ({}, FailureReason.EXECUTOR_FAILED, AppSpec(source=AppSource(inline="app = ..."), plan=mixture(0, 1))),
        ({}, FailureReason.INSUFFICIENT_CAPACITY, AppSpec(source=AppSource(inline="old = ..."), plan=mixture(0, 1))),
        ({}, FailureReason.INSUFFICIENT_CAPACITY, AppSpec(source=AppSource(inline="app = ..."))),
        ({}, FailureReason.INSUFFICIENT_CAPACITY, None),
        ({}, FailureReason.INSUFFICIENT_CAPACITY, AppSpec(model=AppModel(id="a/old"), plan=mixture(0, 1))),
        (
            {"source": None, "model": AppModel(id="a/new")},
            FailureReason.INSUFFICIENT_CAPACITY,
            AppSpec(model=AppModel(id="a/old"), plan=mixture(0, 1)),
        ),
        (
            {"source": None, "model": AppModel(id="a/new")},
            FailureReason.INSUFFICIENT_CAPACITY,
            AppSpec(source=AppSource(inline="app = ..."), plan=mixture(0, 1)),
        ),
        (
            {"policies": AppPolicies(adaptation=AdaptationSettings(approval=True))},
            FailureReason.INSUFFICIENT_CAPACITY,
            AppSpec(source=AppSource(inline="app = ..."), plan=mixture(0, 1)),
        ),
    ],
)
def test_other_failures_wait_for_users(fields: dict[str, Any], reason: FailureReason, served: AppSpec | None) -> None:
    record = failed_record(reason, **fields)

    assert with_served_plan(record, served) is record


async def test_without_adapting_apps_no_gateway_is_asked(store: Store) -> None:
    app = AdaptingApp(store, mixture(0, 1), window_seconds=0.1)
    running = asyncio.create_task(app.driver.run())
    await asyncio.sleep(0)
    assert app.arrivals.reads == 0

    await app.deploy()
    await until(lambda: app.arrivals.reads > 1)

    app.driver.update({})
    reads = app.arrivals.reads
    await until(lambda: not app.driver._wanted.is_set())
    assert app.arrivals.reads - reads <= 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_approvals_need_a_proposal() -> None:
    spec = AppSpec(source=AppSource(inline="app = ..."), plan=mixture(0, 1))

    with pytest.raises(Exception, match="no change of the app 'caption' waits for an approval"):
        scaled_spec("caption", spec, Scale(approve=True), START)

    assert MixtureProposal.of(1, mixture(0, 1), {4: 2, 1: 0}, 30, "more load").counts == {4: 2}
    assert AdaptationStatus().proposal is None
