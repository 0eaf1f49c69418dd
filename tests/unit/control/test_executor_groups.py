"""The executor groups of apps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.settings import AppPolicies, AutoscaledExecutor, AutoscalingSettings
from cornserve.app.spec import AppModel, AppSpec, Restart
from cornserve.control.executor_groups import app_group, cell_groups, merge_groups, share_groups
from cornserve.control.launcher.base import AppOwner, ExecutorGroup
from cornserve.task.spec import ExecutorSpec
from tests.unit.app.plans import ENCODER as ENCODER_TASK
from tests.unit.app.plans import LLM as LLM_TASK
from tests.unit.app.plans import MONOLITH as MONOLITH_TASK
from tests.unit.app.plans import cell, graph, plan, plan_document

ENCODER = ExecutorSpec(executor="encoder", config={"model_id": "a/b"})


def group(app: str = "app", **settings: Any) -> ExecutorGroup:
    return app_group(ENCODER, AppSpec(model=AppModel(id="a/b"), **settings), AppOwner(app, f"uid-of-{app}"))


def test_options_of_all_executors_do_not_change_specs_that_were_loaded_with_them() -> None:
    assert group(executors=[{"name": "*", "options": {"max_model_len": 8}}]).spec == ENCODER


@pytest.mark.parametrize(
    ("executors", "expected"),
    [
        ([], {}),
        ([{"name": "*", "pod_template": {"all": 1}}], {"all": 1}),
        ([{"name": "encoder", "pod_template": {"own": 1}}, {"name": "*", "pod_template": {"all": 1}}], {"own": 1}),
        ([{"name": "llm", "pod_template": {"other": 1}}], {}),
    ],
)
def test_the_pod_template_of_a_named_executor_wins(executors: list[Any], expected: dict[str, int]) -> None:
    assert group(executors=executors).pod.template == expected


@pytest.mark.parametrize(
    ("executors", "expected"),
    [
        ([], None),
        ([{"name": "*", "gpu_type": "l4"}], "l4"),
        ([{"name": "llm", "gpu_type": "h100"}, {"name": "*", "gpu_type": "l4"}], "h100"),
        ([{"name": "llm", "options": {}}, {"name": "*", "gpu_type": "l4"}], "l4"),
    ],
)
def test_the_type_of_gpu_of_a_named_executor_wins(executors: list[Any], expected: str | None) -> None:
    llm = ExecutorSpec(executor="llm", gpus=1)
    assert (
        app_group(llm, AppSpec(model=AppModel(id="a/b"), executors=executors), AppOwner("app", "uid")).pod.gpu_type
        == expected
    )


def test_apps_with_different_types_of_gpus_share_executors_without_gpus() -> None:
    assert group(executors=[{"name": "*", "gpu_type": "l4"}]).key == group().key


@pytest.mark.parametrize(
    ("storage", "drawer_has_it"),
    [({"persistent_volume_claim": {"claim_name": "a"}}, False), ({"download": {"cache_claim_name": "a"}}, True)],
)
def test_the_volume_of_a_model_is_not_that_of_its_drawer(storage: Any, drawer_has_it: bool) -> None:
    app = AppSpec(model=AppModel(id="a/b", drawer="c/d", storage=storage))
    drawer = ExecutorSpec(executor="image_generator", config={"model_id": "c/d"})

    [chat, image] = (app_group(spec, app, AppOwner("app", "uid")).pod.storage for spec in (ENCODER, drawer))

    assert chat is not None
    assert image == (chat if drawer_has_it else None)


def test_a_restart_makes_another_group() -> None:
    assert group(restart=Restart(id="1")).key != group().key


def test_a_restart_of_one_executor_makes_no_other_group_of_the_others() -> None:
    restart = Restart(id="1", executors={"encoder": "2"})
    llm = ExecutorSpec(executor="llm")
    app, owner = AppSpec(model=AppModel(id="a/b")), AppOwner("app", "uid")

    def keys(**fields: Any) -> list[str]:
        return [app_group(spec, app.changed(**fields), owner).key for spec in (ENCODER, llm)]

    before, after = keys(restart=Restart(id="1")), keys(restart=restart)
    assert after[0] != before[0]
    assert after[1] == before[1]
    assert set(keys(restart=restart.model_copy(update={"id": "3"}))).isdisjoint(after)


STAGES = {
    key: ExecutorSpec(executor=name, gpus=1)
    for key, name in ((ENCODER_TASK.key, "encoder"), (LLM_TASK.key, "llm"), (MONOLITH_TASK.key, "llm"))
}
"""The executors of a plan, of which two have the same name."""


def stages(*cells: dict[str, Any], **executor_replicas: int) -> list[dict[str, int]]:
    """Returns the replicas of each cell of an app with numbers for single executors, by deployment option."""
    spec = AppSpec(model=AppModel(id="a/b"), plan=plan(*cells), executor_replicas=executor_replicas)
    assert spec.plan is not None
    executors = resolve_plan(spec.plan, graph()).executors
    groups = cell_groups(spec.plan, executors, spec, STAGES, AppOwner("app", "uid"))
    return [{name: of_cell[key].replicas for name, key in executors.items() if key in of_cell} for of_cell in groups]


SINGLE = cell(3, {"E": 1, "L": 2}, count=1, is_shared=True)
SMALL, LARGE = cell(2, {"EL": 1}, count=2), cell(4, {"E": 1, "L": 3}, count=1)


@pytest.mark.parametrize(
    ("cells", "executor_replicas", "expected"),
    [
        ([SINGLE], {}, [{"E": 1, "L": 2}]),
        ([SINGLE], {"llm": 5}, [{"E": 1, "L": 5}]),
        ([SINGLE], {"llm": 1, "encoder": 2}, [{"E": 2, "L": 1}]),
        ([SMALL, LARGE], {"llm": 10}, [{"EL": 2}, {"EL": 2}, {"E": 1, "L": 6}]),
        ([SMALL, LARGE], {"llm": 6}, [{"EL": 1}, {"EL": 1}, {"E": 1, "L": 4}]),
        ([SMALL, LARGE], {"llm": 1}, [{"EL": 1}, {"EL": 1}, {"E": 1, "L": 3}]),
    ],
)
def test_replicas_of_a_single_executor_are_divided_among_the_cells_of_a_plan(
    cells: list[dict[str, Any]], executor_replicas: dict[str, int], expected: list[dict[str, int]]
) -> None:
    assert stages(*cells, **executor_replicas) == expected


def test_cells_whose_executors_are_scaled_are_the_same_cells() -> None:
    def keys(**executor_replicas: int) -> list[str]:
        spec = AppSpec(model=AppModel(id="a/b"), plan=plan(SMALL, LARGE), executor_replicas=executor_replicas)
        assert spec.plan is not None
        executors = resolve_plan(spec.plan, graph()).executors
        groups = cell_groups(spec.plan, executors, spec, STAGES, AppOwner("app", "uid"))
        return [group.key for of_cell in groups for group in of_cell.values()]

    assert keys(llm=10) == keys()


def test_apps_without_plans_share_a_group_with_the_largest_number_of_replicas() -> None:
    [shared] = share_groups([group("b", replicas=1), group("a", replicas=3)]).values()
    assert (shared.replicas, [owner.name for owner in shared.owners]) == (3, ["a", "b"])


def test_versions_of_an_app_have_the_larger_number_of_replicas() -> None:
    [merged] = merge_groups([group(replicas=3), group(replicas=1)]).values()
    assert merged.replicas == 3


def planned(
    app: str, load: float, *, is_shared: bool = True, policies: AppPolicies | None = None, **executor_replicas: int
) -> list[ExecutorGroup]:
    """Returns the groups of an app with one cell, whose encoder has this load."""
    fields = {"count": 1, "is_shared": is_shared, "loads": {"E": load, "L": 0.5}}
    made = plan(cell(3, {"E": ceil(load), "L": 1}, **fields))
    spec = AppSpec(
        model=AppModel(id="a/b"), plan=made, executor_replicas=executor_replicas, policies=policies or AppPolicies()
    )
    assert spec.plan is not None
    specs = {task.key: task.spec for task in (ENCODER_TASK, LLM_TASK)}
    [groups] = cell_groups(
        spec.plan, resolve_plan(spec.plan, graph()).executors, spec, specs, AppOwner(app, f"uid-of-{app}")
    )
    return list(groups.values())


def replicas(groups: Iterable[ExecutorGroup]) -> int:
    return sum(each.replicas for each in groups if each.spec == ENCODER_TASK.spec)


@pytest.mark.parametrize(("first", "second", "expected"), [(0.4, 0.5, 1), (1.4, 1.5, 3), (2.0, 1.0, 3), (1.2, 1.9, 4)])
def test_planned_apps_share_replicas_for_the_sum_of_their_loads(first: float, second: float, expected: int) -> None:
    apps = planned("a", first), planned("b", second)

    shared = share_groups(each for groups in apps for each in groups)

    assert replicas(shared.values()) == expected
    assert expected <= sum(map(replicas, apps))


def test_versions_of_a_planned_app_have_the_larger_load() -> None:
    old, new = planned("a", 0.4), planned("a", 0.9)
    for versions in ([*old, *new], [*new, *old]):
        merged = merge_groups(versions).values()
        assert replicas(share_groups([*merged, *planned("b", 0.3)]).values()) == 2


def test_versions_with_different_replicas_have_the_larger_load() -> None:
    (old, _), (new, _) = planned("a", 0.3), planned("a", 0.9)
    old = replace(old, replicas=2)

    for versions in ([old, new], [new, old]):
        (merged,) = merge_groups(versions).values()
        assert (merged.replicas, merged.load) == (2, new.load)


def test_two_planned_apps_with_one_encoder_need_fewer_replicas_than_two_separate_ones() -> None:
    apps = planned("a", 0.4), planned("b", 0.5)

    shared = share_groups(each for groups in apps for each in groups)

    assert (replicas(shared.values()), sum(map(replicas, apps))) == (1, 2)


def test_the_replicas_of_an_app_without_a_plan_are_added_to_the_loads_of_planned_apps() -> None:
    unplanned = app_group(ENCODER_TASK.spec, AppSpec(model=AppModel(id="a/b"), replicas=2), AppOwner("c", "uid"))

    shared = share_groups([*planned("a", 0.4), *planned("b", 0.5), unplanned])

    assert replicas(shared.values()) == 3


@pytest.mark.parametrize(("by_hand", "expected"), [(5, 6), (2, 3)])
def test_replicas_by_hand_are_added_to_the_loads_of_other_apps(by_hand: int, expected: int) -> None:
    scaled = planned("a", 1.6, stage=by_hand)  # One of the replicas is the language model's.

    shared = share_groups([*scaled, *planned("b", 1.6)])

    assert replicas(shared.values()) == expected


def test_the_replicas_that_the_loads_of_apps_with_plans_need_are_added() -> None:
    def both(policies: AppPolicies) -> int:
        apps = planned("a", 1.6, policies=policies, stage=5), planned("b", 1.6, policies=policies, stage=2)
        return replicas(share_groups(each for groups in apps for each in groups).values())

    autoscaling = AutoscalingSettings(executors=[AutoscaledExecutor(name="stage", capacity=10)])
    assert both(AppPolicies(autoscaling=autoscaling)) == 5
    assert both(AppPolicies()) == 4  # The largest number by hand is enough.


def test_cells_that_are_not_shared_have_their_own_groups() -> None:
    shared, own = planned("a", 0.4), planned("a", 0.4, is_shared=False)

    assert {each.key for each in shared}.isdisjoint(each.key for each in own)
    assert [each.cell and each.cell.pods for each in own] == [2, 2]
    assert [each.key for each in shared] == [ENCODER_TASK.key, LLM_TASK.key]


def test_a_cell_with_other_replicas_is_another_cell() -> None:
    assert {each.key for each in planned("a", 0.4, is_shared=False)}.isdisjoint(
        each.key for each in planned("a", 1.4, is_shared=False)
    )


def test_the_planned_type_of_gpu_wins() -> None:
    document = plan_document()
    document["options"]["L"]["gpu_type"] = "h100"
    spec = AppSpec.model_validate({"model": "a/b", "plan": document, "executors": [{"name": "*", "gpu_type": "l4"}]})
    assert spec.plan is not None
    specs = {task.key: task.spec for task in (ENCODER_TASK, LLM_TASK)}

    [groups] = cell_groups(spec.plan, resolve_plan(spec.plan, graph()).executors, spec, specs, AppOwner("app", "uid"))

    assert {key: each.pod.gpu_type for key, each in groups.items()} == {ENCODER_TASK.key: "l4", LLM_TASK.key: "h100"}
