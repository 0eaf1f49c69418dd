"""Apps with plans: their cells, and the difference between two plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.record import AppStatus, FailureReason, Phase, ReplicaState, Route, RouteStatus
from cornserve.app.scale import Scale, scaled_spec
from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppSource, AppSpec, Restart
from cornserve.app_host.description import AppDescription
from cornserve.control.app_version import AppVersion
from cornserve.control.deployment import Deployment
from cornserve.control.launcher.base import GroupKey, SlotCount
from cornserve.control.store.base import APPS, ROUTES, AppRecord, Record, RouteRecord
from cornserve.task.errors import DefinitionError
from tests.unit.app.plans import ENCODER, LLM, MONOLITH, cell, plan
from tests.unit.control.running_controller import FakeLauncher, StoreClient, describe, running_controller
from tests.waiting import until

SMALL = {"EL": 2}
LARGE = {"E": 1, "L": 3}


def caption(name: str, planned: AppPlan | None) -> AppSpec:
    source = f"""
from cornserve_echo.stages import caption_app

app = caption_app({name!r}, encoder=0.1, llm=0.1)
"""
    return AppSpec(source=AppSource(inline=source), plan=planned)


def mixture(small: int, large: int, **fields: Any) -> AppPlan:
    return plan(cell(2, SMALL, count=small, **fields), cell(4, LARGE, count=large))


def groups_of(route: Route) -> dict[str, dict[str, GroupKey]]:
    assert route.plan is not None
    return {cell.name: {key: GroupKey(group) for key, group in cell.groups.items()} for cell in route.plan.cells}


async def deploy(client: StoreClient, planned: AppPlan) -> dict[str, dict[str, GroupKey]]:
    """Returns the groups of the app's cells when the app serves."""
    await client.deploy("caption", caption("caption", planned))
    return groups_of(await client.wait_until_served("caption"))


async def redeploy(client: StoreClient, planned: AppPlan) -> None:
    await client.redeploy("caption", caption("caption", planned))


async def failed_status(client: StoreClient) -> AppStatus:
    return await client.wait_for_status("caption", lambda status: status.phase is Phase.FAILED)


async def test_each_cell_has_its_own_groups(client: StoreClient) -> None:
    launcher = FakeLauncher()
    await client.deploy("caption", caption("caption", mixture(small=1, large=2)))

    async with running_controller(client, launcher):
        route = await client.wait_until_served("caption")

    groups = groups_of(route)
    assert {name: set(keys) for name, keys in groups.items()} == {
        "2-0": {MONOLITH.key},
        "4-0": {ENCODER.key, LLM.key},
        "4-1": {ENCODER.key, LLM.key},
    }
    assert route.groups == {}
    replicas = {key: group.replicas for key, group in launcher.groups.items()}
    assert route.group_keys == replicas.keys()
    assert {name: [replicas[key] for key in keys.values()] for name, keys in groups.items()} == {
        "2-0": [2],
        "4-0": [1, 3],
        "4-1": [1, 3],
    }


async def test_a_changed_plan_starts_and_stops_only_the_difference(client: StoreClient) -> None:
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        before = await deploy(client, mixture(small=1, large=1))
        launcher.changes.clear()

        await redeploy(client, mixture(small=0, large=2))
        after = groups_of(await client.wait_until_served("caption", 2))

        await until(lambda: len(launcher.groups) == 4)
    assert after.keys() == {"4-0", "4-1"}
    assert after["4-0"] == before["4-0"]
    new = {after["4-1"][ENCODER.key]: 1, after["4-1"][LLM.key]: 3}
    assert Counter(launcher.changes) == Counter([*new.items(), (before["2-0"][MONOLITH.key], -2)])


async def test_scaling_a_stage_of_a_plan_starts_and_stops_only_its_replicas(client: StoreClient) -> None:
    launcher = FakeLauncher()
    planned = plan(cell(3, {"E": 1, "L": 2}, count=1, is_shared=True))
    async with running_controller(client, launcher):
        await deploy(client, planned)
        launcher.changes.clear()

        scaled = caption("caption", planned).changed(executor_replicas={"stage": 4})  # The name of both executors.
        await client.redeploy("caption", scaled)
        await until(lambda: launcher.changes == [(LLM.key, 1)])
        await client.redeploy("caption", scaled.changed(executor_replicas={"stage": 2}))
        await until(lambda: launcher.changes == [(LLM.key, 1), (LLM.key, -2)])
        await client.wait_until_served("caption", 3)


async def test_removed_cells_serve_until_all_executors_of_the_new_plan_are_ready(client: StoreClient) -> None:
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await deploy(client, mixture(small=1, large=0))
        launcher.becomes_ready = False
        old = set(launcher.groups)

        await redeploy(client, mixture(small=0, large=1))
        await until(lambda: len(launcher.groups) == 3)
        new = launcher.groups.keys() - old
        encoder, llm = sorted(new, key=lambda key: launcher.groups[key].replicas)
        launcher.show(encoder, ReplicaState.READY)
        launcher.show(llm, ReplicaState.READY, ReplicaState.READY, ReplicaState.STARTING)
        status = await client.wait_for_status(
            "caption", lambda status: sum(group.ready for group in status.groups) == 5
        )
        assert (status.phase, status.serving_generation) == (Phase.STARTING, 1)

        launcher.show(llm, *[ReplicaState.READY] * 3)
        route = await client.wait_until_served("caption", 2)
        assert route.group_keys == new
        await until(lambda: launcher.groups.keys() == new)


async def test_a_shared_cell_keeps_its_executors_when_other_cells_start_and_stop(client: StoreClient) -> None:
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await client.deploy("caption", caption("caption", mixture(small=1, large=0, is_shared=True)))
        route = await client.wait_until_served("caption")
        assert groups_of(route) == {"": {MONOLITH.key: MONOLITH.key}}
        for generation, (small, large) in enumerate([(2, 0), (1, 1), (1, 0)], 2):
            await redeploy(client, mixture(small, large, is_shared=True))
            await client.wait_until_served("caption", generation)
    assert [change for change in launcher.changes if change[0] == MONOLITH.key] == [(MONOLITH.key, 2)]


async def test_an_app_keeps_its_executors_when_it_gets_a_plan_and_when_it_loses_it(client: StoreClient) -> None:
    launcher = FakeLauncher()
    planned = plan(cell(3, {"EL": 1, "E": 1, "L": 1}, count=1, is_shared=True))
    async with running_controller(client, launcher):
        for generation, each in enumerate([None, planned, None], 1):
            spec = caption("caption", each)
            await (client.deploy if generation == 1 else client.redeploy)("caption", spec)
            await client.wait_until_served("caption", generation)
    assert Counter(launcher.changes) == Counter((GroupKey(task.key), 1) for task in (MONOLITH, ENCODER, LLM))


async def test_two_planned_apps_share_an_executor_for_the_sum_of_their_loads(client: StoreClient) -> None:
    launcher = FakeLauncher()
    one = plan(cell(3, {"E": 1, "L": 2}, count=1, is_shared=True, loads={"E": 0.4, "L": 1.7}))
    async with running_controller(client, launcher):
        for name in ("a", "b"):
            await client.deploy(name, caption(name, one))
        for name in ("a", "b"):
            await client.wait_until_served(name)
        await until(lambda: launcher.groups[GroupKey(LLM.key)].replicas == 4)
        assert launcher.groups[GroupKey(ENCODER.key)].replicas == 1

        await client.store.delete(APPS, "b")
        await until(lambda: launcher.groups[GroupKey(LLM.key)].replicas == 2)


async def test_planned_apps_share_an_executor_for_the_rates_of_their_plans(client: StoreClient) -> None:
    launcher = FakeLauncher()
    least = plan(cell(2, {"EL": 1}, count=1, is_shared=True, rate=8.0, loads={"EL": 1.0}), target=3.0)
    async with running_controller(client, launcher):
        for name in ("a", "b"):
            await client.deploy(name, caption(name, least))
            await client.wait_until_served(name)
        assert launcher.groups[GroupKey(MONOLITH.key)].replicas == 1  # Each needs 0.375.

        scaled = scaled_spec("b", caption("b", least), Scale(rate=6.0), datetime.now(UTC))
        await client.redeploy("b", scaled)
        await until(lambda: launcher.groups[GroupKey(MONOLITH.key)].replicas == 2)


async def test_an_app_that_adapts_shares_an_executor_for_the_rate_that_its_cells_serve(client: StoreClient) -> None:
    launcher = FakeLauncher()
    least = plan(cell(2, {"EL": 1}, count=1, is_shared=True, rate=8.0, loads={"EL": 1.0}), target=3.0)
    async with running_controller(client, launcher):
        for name, adaptation in [("a", None), ("b", AdaptationSettings())]:
            spec = caption(name, least).changed(policies=AppPolicies(adaptation=adaptation))
            await client.deploy(name, spec)
            await client.wait_until_served(name)
        assert launcher.groups[GroupKey(MONOLITH.key)].replicas == 2


async def test_a_plan_of_other_options_fails_by_name_and_starts_nothing(client: StoreClient) -> None:
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await deploy(client, mixture(small=1, large=0))
        before = dict(launcher.groups)
        other = mixture(small=1, large=0).model_dump()
        other["options"]["EL"]["settings"] = {"seconds": {"encoder": 7.0, "llm": 0.1}}

        await redeploy(client, AppPlan.model_validate(other))
        status = await failed_status(client)

        assert launcher.groups == before
    assert "option 'EL' is StageTask with settings that no executor of the app has" in status.message
    assert status.serving_generation == 1


async def test_cells_without_a_path_for_a_request_type_fail_by_name_and_start_nothing(client: StoreClient) -> None:
    launcher = FakeLauncher()
    text = {"text": [0.0, 1.0]}
    cells = cell(1, {"L": 1}, probabilities=text), cell(4, LARGE)

    def planned(small: int, large: int) -> AppPlan:
        counts = [each | {"count": count} for each, count in zip(cells, (small, large), strict=True)]
        return plan(*counts, default_type="text")

    async with running_controller(client, launcher):
        await deploy(client, planned(1, 1))
        before = dict(launcher.groups)

        await redeploy(client, planned(1, 0))
        status = await failed_status(client)

        assert launcher.groups == before
    assert "no path serves requests of the type 'encoder+llm', which the app takes" in status.message


async def test_a_plan_that_needs_more_than_exists_fails_with_its_options_and_starts_nothing(
    client: StoreClient,
) -> None:
    launcher = FakeLauncher(slots=5)
    await client.deploy("caption", caption("caption", mixture(small=1, large=1)))

    async with running_controller(client, launcher):
        status = await failed_status(client)

    assert status.reason is FailureReason.INSUFFICIENT_CAPACITY
    assert status.message == (
        "the plan needs 6 CPU slots (EL 2, E 1, L 3), but 5 exist and 5 are free: plan for at most 5"
    )
    assert launcher.changes == []


async def test_removed_cells_end_first_if_new_ones_have_no_room_beside_them(client: StoreClient) -> None:
    launcher = FakeLauncher(slots=8)
    async with running_controller(client, launcher):
        before = await deploy(client, mixture(small=1, large=1))
        launcher.slot_count, launcher.becomes_ready = SlotCount("CPU slot", 8, 2), False

        await redeploy(client, mixture(small=0, large=2))
        await until(lambda: before["2-0"][MONOLITH.key] not in launcher.groups)

        async def kept_cell_is_routed() -> bool:
            route = (await client.store.get(ROUTES, "caption")).spec
            return groups_of(route) == {"4-0": before["4-0"]}

        await until(kept_cell_is_routed)
        for key in launcher.groups.keys() - before["4-0"].values():
            launcher.show(key, *[ReplicaState.READY] * launcher.groups[key].replicas)
        after = groups_of(await client.wait_until_served("caption", 2))
    assert after.keys() == {"4-0", "4-1"}
    assert after["4-0"] == before["4-0"]


async def served_deployment(spec: AppSpec) -> tuple[Deployment, AppRecord, RouteRecord]:
    """Returns a deployment whose newest version serves, with its records."""
    record: AppRecord = Record("caption", "uid", 1, 1, spec, AppStatus())
    served = AppVersion.from_description(record, await describe(record.name, record.spec))
    route = Record("caption", "route", 1, 1, served.route, RouteStatus())
    deployment = Deployment(record)
    deployment.apply_records(record, None)
    await deployment.load(describe)
    deployment.apply_records(record, None)
    deployment.apply_records(record, route)
    return deployment, record, route


async def test_a_cell_that_remains_has_no_replicas_of_ended_ones() -> None:
    launcher = FakeLauncher()
    launcher.slot_count = SlotCount("CPU slot", 8, 2)
    spec = caption("caption", mixture(small=1, large=1))
    deployment, record, route = await served_deployment(spec.changed(executor_replicas={"stage": 7}))

    deployment.apply_records(replace(record, generation=2, spec=spec.changed(plan=mixture(small=0, large=2))), route)
    deployment.make_room(launcher)

    assert sorted(group.replicas for group in deployment.groups().values()) == [1, 1, 3, 3]


async def test_ended_cells_stay_ended_if_the_route_could_not_be_written() -> None:
    launcher = FakeLauncher()
    launcher.slot_count = SlotCount("CPU slot", 8, 2)
    deployment, record, route = await served_deployment(caption("caption", mixture(small=1, large=1)))
    changed = replace(record, generation=2, spec=caption("caption", mixture(small=0, large=2)))

    for _ in range(2):  # the second round still finds the old route
        deployment.apply_records(changed, route)
        deployment.make_room(launcher)
        for key, group in deployment.groups().items():
            waits = key not in route.spec.group_keys
            state = ReplicaState.STARTING if waits else ReplicaState.READY
            reason = FailureReason.INSUFFICIENT_CAPACITY if waits else ""
            launcher.show(key, *[state] * group.replicas, reason=reason)

    ended = groups_of(route.spec)["2-0"][MONOLITH.key]
    assert ended not in deployment.groups()


async def test_cells_continue_to_run_if_new_ones_have_room_beside_them_or_none_remains(client: StoreClient) -> None:
    launcher = FakeLauncher(slots=8)
    async with running_controller(client, launcher):
        before = await deploy(client, mixture(small=1, large=0))
        launcher.slot_count, launcher.becomes_ready = SlotCount("CPU slot", 8, 2), False

        await redeploy(client, mixture(small=0, large=1))
        await client.wait_for_status("caption", lambda status: status.generation == 2 and len(status.groups) == 3)

        assert launcher.groups.keys() >= set(before["2-0"].values())


async def test_a_plan_without_a_running_cell_is_refused_if_both_exceed_the_slots(client: StoreClient) -> None:
    launcher = FakeLauncher(slots=5)
    async with running_controller(client, launcher):
        before = await deploy(client, mixture(small=1, large=0))
        launcher.slot_count = SlotCount("CPU slot", 5, 3)

        await redeploy(client, mixture(small=0, large=1))
        status = await failed_status(client)

        assert launcher.groups.keys() == set(before["2-0"].values())
    assert status.reason is FailureReason.INSUFFICIENT_CAPACITY
    assert status.message == (
        "the plan has no cell of the running one, and both need 6 CPU slots until the new cells serve, but 5 exist: "
        "delete the app first, or scale it to fewer GPUs"
    )


async def test_a_restart_of_a_plan_is_refused_if_both_versions_exceed_the_slots(client: StoreClient) -> None:
    launcher = FakeLauncher(slots=8)
    async with running_controller(client, launcher):
        before = await deploy(client, mixture(small=1, large=1))
        launcher.slot_count = SlotCount("CPU slot", 8, 2)

        restarted = caption("caption", mixture(small=1, large=1)).model_copy(update={"restart": Restart(id="again")})
        await client.redeploy("caption", restarted)
        status = await failed_status(client)

        assert launcher.groups.keys() == {key for groups in before.values() for key in groups.values()}
    assert status.reason is FailureReason.INSUFFICIENT_CAPACITY
    assert "both need 12 CPU slots until the new cells serve, but 8 exist" in status.message


async def test_less_than_a_plan_that_needed_too_much_fits_in_place_of_the_one_that_serves(client: StoreClient) -> None:
    launcher = FakeLauncher(slots=100)
    policies = AppPolicies(adaptation=AdaptationSettings())
    spec = caption("caption", mixture(small=1, large=0)).changed(policies=policies)
    record: AppRecord = Record("caption", "uid", 1, 1, spec, AppStatus())
    served = AppVersion.from_description(record, await describe(record.name, record.spec))
    route = Record("caption", "route", 1, 1, served.route, RouteStatus())
    failed = AppStatus(
        phase=Phase.FAILED, generation=2, reason=FailureReason.INSUFFICIENT_CAPACITY, failed_code=spec.code
    )
    oversized = spec.changed(plan=mixture(small=0, large=3))
    deployment = Deployment(record)
    deployment.apply_records(replace(record, generation=2, spec=oversized, status=failed), route)

    assert deployment.adapted_record.spec.plan == mixture(small=1, large=0)
    kept = mixture(small=1, large=0)
    assert deployment.find_obstacle(mixture(small=2, large=1), kept, launcher) is None
    assert deployment.find_obstacle(mixture(small=0, large=3), kept, launcher) == (
        "a plan for 12 GPUs or slots has failed"
    )
    assert deployment.most_gpus(launcher) == 11
    assert deployment.most_gpus(FakeLauncher(slots=4)) == 4 + kept.gpus


async def test_cells_without_a_path_for_a_request_type_cannot_replace_others() -> None:
    cells = cell(1, {"L": 1}, probabilities={"text": [0.0, 1.0]}), cell(4, LARGE, count=1)
    served = plan(*cells, default_type="text")
    spec = caption("caption", served)
    record: AppRecord = Record("caption", "uid", 1, 1, spec, AppStatus())
    version = AppVersion.from_description(record, await describe(record.name, record.spec))

    assert version.find_obstacle(served.with_counts({1: 1, 4: 1}, None), served, FakeLauncher()) is None
    obstacle = version.find_obstacle(served.with_counts({1: 3}, None), served, FakeLauncher())
    assert obstacle is not None
    assert "no path serves requests of the type 'encoder+llm'" in obstacle


@pytest.mark.parametrize("counts", [(1, 2), (1, 1)])
async def test_a_new_controller_continues_with_the_served_plan(client: StoreClient, counts: tuple[int, int]) -> None:
    launcher = FakeLauncher()
    await client.deploy("caption", caption("caption", mixture(small=1, large=1)))
    async with running_controller(client, launcher):
        route = await client.wait_until_served("caption")
    launcher.changes.clear()
    await redeploy(client, mixture(*counts))

    described = []

    async def describe_and_count(name: str, spec: AppSpec) -> AppDescription:
        described.append(name)
        return await describe(name, spec)

    async with running_controller(client, launcher, describe_and_count):
        generation = (await client.store.get(APPS, "caption")).generation
        changed = await client.wait_until_served("caption", generation)
        assert groups_of(route).items() <= groups_of(changed).items()
    assert len(launcher.changes) == 2 * (counts[1] - 1)
    assert len(described) == counts[1] - 1


async def test_a_served_plan_remains_when_its_app_cannot_be_loaded_any_more(client: StoreClient) -> None:
    async def refuse(name: str, spec: AppSpec) -> AppDescription:
        raise DefinitionError("a package is missing")

    launcher = FakeLauncher()
    await client.deploy("caption", caption("caption", mixture(small=1, large=1)))
    async with running_controller(client, launcher):
        await client.wait_until_served("caption")
    launcher.changes.clear()
    await redeploy(client, mixture(small=1, large=2))

    async with running_controller(client, launcher, refuse):
        status = await failed_status(client)
    assert (status.serving_generation, launcher.changes) == (1, [])
