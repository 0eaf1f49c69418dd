"""The limits of engine steps of a plan become options of a model's executors."""

from __future__ import annotations

from typing import Any

import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.settings import ExecutorOverride
from cornserve.app.spec import AppModel, AppSource, AppSpec
from cornserve.app.step_limits import unset_limits, with_step_limits
from tests.unit.app.plans import cell, plan_document

MODEL = AppSpec(model=AppModel(id="model"))
SMALL, LARGE = {"max_num_seqs": 4, "max_num_batched_tokens": 512}, {"max_num_seqs": 8, "max_num_batched_tokens": 256}


def plan(**tasks: str) -> AppPlan:
    document = plan_document(cell(3, {"E": 1, "L": 2}, count=1))
    for name, task in tasks.items():
        document["options"][name] |= {"task": task, "settings": {"model_id": "model"}}
    return AppPlan.model_validate(document)


def options_of(spec: AppSpec) -> dict[str, dict[str, Any]]:
    return {override.name: override.options for override in spec.executors}


def test_the_limits_are_options_of_the_executor_and_settings_of_the_plan() -> None:
    spec, found = with_step_limits(MODEL, plan(L="LLMTask"), {"L": SMALL})
    assert options_of(spec) == {"llm": SMALL}
    assert found.options["L"].settings == {"model_id": "model", "options": SMALL}
    assert found.options["E"] == plan(L="LLMTask").options["E"]


def test_options_of_one_executor_have_the_smallest_limits() -> None:
    spec, found = with_step_limits(MODEL, plan(E="LLMTask", L="LLMTask"), {"E": SMALL, "L": LARGE})
    smallest = {"max_num_seqs": 4, "max_num_batched_tokens": 256}
    assert options_of(spec) == {"llm": smallest}
    assert [found.options[name].settings["options"] for name in "EL"] == [smallest, smallest]


def test_the_language_model_of_an_omni_model_has_its_limits() -> None:
    spec, _ = with_step_limits(MODEL, plan(L="ThinkerTask"), {"L": SMALL})
    assert options_of(spec) == {"thinker": SMALL}


def test_limits_are_unset_until_the_options_of_the_engine_contain_them() -> None:
    running = plan(L="LLMTask")
    assert unset_limits(running, {"E": LARGE, "L": SMALL}) == {"L": SMALL}
    _, limited = with_step_limits(MODEL, running, {"L": SMALL})
    assert unset_limits(limited, {"L": SMALL}) == {}


def test_prefill_and_decode_have_their_limits() -> None:
    spec, _ = with_step_limits(MODEL, plan(E="PrefillTask", L="DecodeTask"), {"E": SMALL, "L": LARGE})
    assert options_of(spec) == {"prefill": SMALL, "decode": LARGE}


@pytest.mark.parametrize("name", ["llm", "*"])
def test_limits_that_users_set_remain(name: str) -> None:
    given = AppSpec(model=AppModel(id="model"), executors=[ExecutorOverride(name=name, options={"max_num_seqs": 99})])
    spec, found = with_step_limits(given, plan(L="LLMTask"), {"L": SMALL})
    options = options_of(spec)
    assert options[name]["max_num_seqs"] == 99
    assert options["llm"].get("max_num_seqs", 99) == 99
    assert options["llm"]["max_num_batched_tokens"] == 512
    assert found.options["L"].settings["options"] == {"max_num_batched_tokens": 512}


def test_apps_with_source_and_other_executors_stay_as_they_are() -> None:
    source = AppSpec(source=AppSource(inline="app = ..."))
    assert with_step_limits(source, plan(L="LLMTask"), {"L": SMALL}) == (source, plan(L="LLMTask"))
    assert with_step_limits(MODEL, plan(L="StageTask"), {"L": SMALL}) == (MODEL, plan(L="StageTask"))
