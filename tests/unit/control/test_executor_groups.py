"""The executor groups of apps."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.app.record import AppSpec
from cornserve.control.executor_groups import app_group, merge_groups
from cornserve.control.launcher.base import AppOwner, ExecutorGroup
from cornserve.task.spec import ExecutorSpec

ENCODER = ExecutorSpec(executor="encoder", config={"model_id": "a/b"})


def group(app: str = "app", **settings: Any) -> ExecutorGroup:
    return app_group(ENCODER, AppSpec(model="a/b", **settings), AppOwner(app, f"uid-of-{app}"))


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


def test_a_restart_makes_another_group() -> None:
    assert group(restart="1").key != group().key


def test_apps_share_a_group_with_the_largest_number_of_replicas() -> None:
    [merged] = merge_groups([group("b", replicas=1), group("a", replicas=3)]).values()
    assert (merged.replicas, [owner.name for owner in merged.owners]) == (3, ["a", "b"])
