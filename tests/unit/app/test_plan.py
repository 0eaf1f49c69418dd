"""Plans of apps, and their resolution for an app's executor graph."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest
from pydantic import ValidationError

from cornserve.app.graph import AppGraph, GraphOption, GraphStep
from cornserve.app.plan import MAX_PLAN_BYTES, AppPlan
from cornserve.app.plan_resolution import resolve_plan
from cornserve.app.spec import AppModel, AppSpec
from cornserve.task.errors import DefinitionError
from cornserve_echo.stages import StageTask
from tests.unit.app.plans import ENCODER, LLM, MONOLITH, cell, graph, plan, plan_document

Where = tuple[str | int, ...]


def changed(where: Where, value: Any) -> dict[str, Any]:
    document = deepcopy(plan_document())
    *parents, last = where
    part: Any = document
    for name in parents:
        part = part[name]
    part[last] = value
    return document


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("default_type",), "video", "'video' is not a type of the plan"),
        (("types", "text", "share"), 0.5, "their shares add up to 1.25"),
        (("types", "text", "components"), ["encoder", "llm"], "runs llm, but the type needs encoder, llm"),
        (("types", "text", "paths", 0, "steps", 0, "option"), "X", "'X' is not an option of the plan"),
        (("types", "text", "paths", 0, "steps", 0, "binding"), "late", "the first step reads no other one"),
        (("types", "images", "paths", 1, "steps", 1, "binding"), "soon", "Input should be 'early' or 'late'"),
        (("cells", 0, "replicas"), {"E": 1, "X": 2}, "'X' is not known"),
        (("cells", 0, "replicas"), {"L": 2}, "'E' is not known"),
        (("cells", 0, "replicas", "L"), 0, "greater than or equal to 1"),
        (("cells", 0, "count"), -1, "greater than or equal to 0"),
        (("cells", 0, "count"), 0, "0 cells run"),
        (("cells", 0, "loads", "L"), 2.1, "2.1 is more than its 2 replicas"),
        (("cells", 0, "probabilities", "text"), [0.0, 0.5], "add up to 0.5"),
        (("cells", 0, "probabilities", "text"), [1.0], "has 1 numbers"),
        (("cells", 0, "probabilities", "text"), [1.0, 0.0], "uses 'EL', which has no replicas"),
        (("cells", 0, "probabilities"), {"text": [0.0, 1.0]}, "no paths for the default type 'images'"),
        (("cells", 0, "rate"), float("inf"), "finite"),
        (("cells",), [cell(4, {"EL": 4}, count=1), cell(2, {"EL": 2})], "smallest first"),
        (("cells",), [cell(2, {"EL": 2}, is_shared=True), cell(4, {"EL": 4}, count=1)], "is_shared"),
        (("options", "EL", "settings"), {"text": "x" * MAX_PLAN_BYTES}, "at most 131072 are allowed"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused_with_the_place(where: Where, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        AppPlan.model_validate(changed(where, value))


def test_two_types_with_equal_components_are_refused() -> None:
    types = plan_document()["types"]
    with pytest.raises(ValidationError, match="are those of 'text'"):
        plan(types={**types, "other": {**types["text"], "share": 0.0}})


def test_replicas_and_a_plan_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="a plan has the replicas of the executors"):
        AppSpec(model=AppModel(id="a/b"), plan=plan(), replicas=2)


def test_another_plan_is_the_same_code() -> None:
    codes = {
        AppSpec(model=AppModel(id="a/b"), plan=each).code for each in (None, plan(), plan(cell(2, {"EL": 2}, count=3)))
    }
    assert len(codes) == 1


def test_a_shared_cell_remains_shared_as_long_as_it_runs() -> None:
    small, large = cell(2, {"EL": 2}, count=1, is_shared=True), cell(4, {"EL": 4})
    one = plan(small, large)

    grown = one.with_counts({2: 2, 4: 1}, 20.0)
    moved = grown.with_counts({4: 2}, None)

    assert [name for name, _ in one.running_cells] == [""]
    assert [name for name, _ in grown.running_cells] == ["", "2-1", "4-0"]
    assert [name for name, _ in moved.running_cells] == ["4-0", "4-1"]
    assert (grown.rate, grown.gpus, grown.target) == (40.0, 8, 20.0)


def test_a_plan_resolves_to_executors_and_paths_of_the_app() -> None:
    images = [0.25, 0.75]
    both = cell(4, {"EL": 1, "E": 1, "L": 2}, count=2, probabilities={"text": [0.0, 1.0], "images": images})

    resolved = resolve_plan(plan(both), graph())

    assert resolved.types == {"text": ["llm"], "images": ["encoder", "llm"]}
    assert resolved.default_type == "images"
    assert resolved.executors == {"EL": MONOLITH.key, "E": ENCODER.key, "L": LLM.key}
    assert [cell.name for cell in resolved.cells] == ["4-0", "4-1"]
    for found in resolved.cells:
        assert found.rate == 20
        assert found.replicas == {MONOLITH.key: 1, ENCODER.key: 1, LLM.key: 2}
        assert found.probabilities == {"text": [0.0, 1.0], "images": images}


def test_paths_are_found_in_the_order_of_the_app() -> None:
    app = graph()
    reversed_paths = app.model_copy(update={"paths": app.paths[::-1]})

    resolved = resolve_plan(plan(), reversed_paths)

    assert resolved.cells[0].probabilities == {"text": [1.0, 0.0], "images": [1.0, 0.0]}


def test_the_binding_of_a_step_is_that_of_its_executor_on_the_path_of_the_app() -> None:
    late = AppPlan.model_validate(changed(("types", "images", "paths", 1, "steps", 1, "binding"), "late"))

    assert resolve_plan(plan(), graph()).bindings == {}
    assert resolve_plan(late, graph()).bindings == {"images": [{}, {LLM.key: "late"}]}


def with_drawings() -> AppGraph:
    """Returns the graph of an app that may draw after the language model has answered."""
    draw = StageTask(seconds={"draw": 1.0})
    option = GraphOption(
        executor=draw.key, task="StageTask", settings={"seconds": {"draw": 1.0}}, components=("draw",), gpus=1
    )
    app, conditional = graph(), (GraphStep(option="D", components=("draw",)),)
    paths = [path.model_copy(update={"conditional": conditional}) for path in app.paths]
    return app.model_copy(update={"options": {**app.options, "D": option}, "paths": tuple(paths)})


def drawing_plan(**texts: Any) -> AppPlan:
    document = plan_document(cell(4, {"E": 1, "L": 2, "D": 1}, count=1))
    document["options"]["D"] = {"task": "StageTask", "settings": {"seconds": {"draw": 1.0}}, "gpus": 1}
    document["types"]["text"]["components"].append("draw")
    for path in document["types"]["text"]["paths"]:
        path["steps"].append({"option": "D", "components": ["draw"]})
    document["types"] |= texts
    return AppPlan.model_validate(document)


def test_components_that_follow_a_value_have_replicas_and_are_not_part_of_the_type() -> None:
    resolved = resolve_plan(drawing_plan(), with_drawings())

    assert resolved.types == {"text": ["llm"], "images": ["encoder", "llm"]}
    [found] = resolved.cells
    assert found.replicas[StageTask(seconds={"draw": 1.0}).key] == 1
    assert found.probabilities == {"text": [0.0, 1.0], "images": [0.0, 1.0]}


def test_types_that_only_differ_after_a_value_are_refused_by_name() -> None:
    text = plan_document()["types"]["text"] | {"share": 0.0}
    with pytest.raises(DefinitionError, match="types 'text' and 'other' differ only in components that run after a"):
        resolve_plan(drawing_plan(other=text), with_drawings())


def test_options_with_equal_executors_share_replicas() -> None:
    options = plan_document()["options"]
    twice = plan(cell(3, {"E": 1, "L": 1, "L2": 1}, count=1), options={**options, "L2": options["L"]})

    assert resolve_plan(twice, graph()).cells[0].replicas == {ENCODER.key: 1, LLM.key: 2}


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("options", "L", "task"), "LLMTask", "option 'L' is LLMTask"),
        (("options", "L", "settings", "concurrency"), 2, "concurrency=None (plan: 2)"),
        (("options", "L", "gpus"), 2, "option 'L' has 2 GPUs, but the app's executor 1"),
    ],
)
def test_a_plan_of_other_options_is_refused_by_name(where: Where, value: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        resolve_plan(AppPlan.model_validate(changed(where, value)), graph())


def test_a_type_that_the_app_does_not_have_is_refused_by_name() -> None:
    app = graph()
    texts = app.model_copy(update={"types": {"llm": ("llm",)}})
    with pytest.raises(DefinitionError, match="type 'images' needs encoder, llm"):
        resolve_plan(plan(), texts)


def test_a_path_that_the_app_does_not_have_is_refused_by_name() -> None:
    app = graph()
    monolith = app.model_copy(update={"paths": app.paths[:1]})
    with pytest.raises(DefinitionError, match=re.escape("serves type 'text' by L (llm), path 1 of the plan")):
        resolve_plan(plan(), monolith)


def test_a_path_without_requests_need_not_exist() -> None:
    app = graph()
    split = app.model_copy(update={"paths": app.paths[1:]})

    assert resolve_plan(plan(), split).cells[0].probabilities["images"] == [1.0]


def test_one_executor_on_two_types_of_gpus_is_refused() -> None:
    options = plan_document()["options"]
    other = plan(options={**options, "L2": {**options["L"], "gpu_type": "h100"}})
    with pytest.raises(DefinitionError, match="'L' and 'L2' have the same executor on different types of GPUs"):
        resolve_plan(other, graph())
