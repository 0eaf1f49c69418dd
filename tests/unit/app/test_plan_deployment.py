"""Plan files are plans of apps."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

import pytest

from cornserve.app.plan import AppPlan
from cornserve.client.errors import DeployTargetError
from cornserve.client.plan_reader import read_plan
from cornserve.task.errors import DefinitionError
from cornserve_planner.model.document import ExecutorTask, ModelDocument
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.plan_file.document import PlanFile
from cornserve_planner.planning.model_plan import make_plan
from cornserve_planner.planning.request import PlanRequest


def with_executors(model: ModelDocument) -> ModelDocument:
    options = {
        name: option.model_copy(update={"executor": ExecutorTask(task="Stage", settings={"name": name})})
        for name, option in model.options.items()
    }
    return model.model_copy(update={"options": options})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> PlanFile:
    """A plan of two cells, for a model whose options name their executors."""
    path = tmp_path_factory.mktemp("plan") / "model.json"
    path.write_text(with_executors(shipped_model("qwen2.5-omni-7b")).dump())
    return make_plan(PlanRequest(str(path), rate=10, factors={"monolith": 3.0}, largest_cell=16)).file


def test_the_plan_has_the_cells_that_run_or_may_run_later(file: PlanFile) -> None:
    plan = AppPlan.of(file.deployable())

    assert plan.counts == file.counts
    assert {cell.gpus for cell in plan.cells} == {cell.gpus for cell in file.cells if cell.kept or cell.count}
    assert plan.rate == pytest.approx(file.rate)
    assert plan.target == file.target
    assert plan.options.keys() == file.options.keys()
    assert [each.sha256 for each in plan.inputs] == [each.sha256 for each in file.inputs]


def test_the_replicas_of_a_cell_follow_from_its_loads(file: PlanFile) -> None:
    for cell in AppPlan.of(file.deployable()).cells:
        assert max(load / cell.replicas[name] for name, load in cell.loads.items()) == pytest.approx(1, rel=1e-3)
        assert all(ceil(load - 1e-3) <= cell.replicas[name] for name, load in cell.loads.items())


def test_a_cell_that_survives_a_loss_needs_all_of_its_replicas(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(with_executors(shipped_model("qwen2.5-omni-7b")).dump())
    result = make_plan(PlanRequest(str(path), gpus=3, factors={"monolith": 3.0}, survive=True))

    [cell] = AppPlan.of(result.file.deployable()).cells

    assert cell.loads == cell.replicas


@pytest.mark.parametrize(("count", "expected"), [(1, True), (2, False)])
def test_a_plan_with_one_running_cell_shares_its_executors(file: PlanFile, count: int, expected: bool) -> None:
    smallest = next(cell.gpus for cell in file.cells if cell.kept)

    plan = AppPlan.of(file.with_counts({smallest: count}, None).deployable())

    assert [cell.is_shared for cell in plan.cells if cell.count] == [expected]


def test_types_with_equal_components_are_planned_but_not_deployed(tmp_path: Path) -> None:
    model, workload = tmp_path / "model.json", tmp_path / "workload.json"
    model.write_text(with_executors(shipped_model("llava-1.5-7b")).dump())
    kind = {"components": ["image_encoder", "llm"], "share": 0.5}
    document = {"format": "cornserve-planner/workload", "version": 1, "types": {"short": kind, "long": kind}}
    workload.write_text(json.dumps(document))

    file = make_plan(PlanRequest(str(model), rate=1, objective="dollars", workload=workload)).file

    with pytest.raises(DefinitionError, match=r"types\.long\.components: are those of 'short'"):
        AppPlan.of(file.deployable())


def test_a_plan_of_a_model_without_executors_is_refused(tmp_path: Path) -> None:
    result = make_plan(PlanRequest("qwen2.5-omni-7b", gpus=2, factors={"monolith": 3.0}, largest_cell=2))
    result.save(tmp_path / "plan.json")

    with pytest.raises(DeployTargetError, match=r"plan\.json: options\..*\.task: is not known: make the plan of an"):
        read_plan(tmp_path / "plan.json")


def test_a_file_of_version_1_is_refused(file: PlanFile, tmp_path: Path) -> None:
    file.write(tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text()) | {"version": 1}
    (tmp_path / "plan.json").write_text(json.dumps(document))

    with pytest.raises(DeployTargetError, match="version 1 is not read any more"):
        read_plan(tmp_path / "plan.json")
