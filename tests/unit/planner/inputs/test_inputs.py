"""The planner's inputs: models, workloads, profiles and GPU types that fit together or do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import PlanInputs, build_inputs, load_inputs
from cornserve_planner.model.document import ExecutorTask, ModelDocument
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.planning.confidence import estimate_sources
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.requests.request import WorkloadImage, WorkloadRequest
from cornserve_planner.workload.document import read_workload
from cornserve_planner.workload.request_files import write_requests
from cornserve_planner.workload.shipped import shipped_workload


def _built(model: ModelDocument, profile: str) -> PlanInputs:
    return build_inputs(model, shipped_workload(model), ModelProfile.shipped(profile), GpuCatalog.shipped())


def test_the_profile_of_another_model_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match="the profile is for 'internvl3-38b', but the model is 'qwen2"):
        _built(shipped_model("qwen2.5-vl-32b"), "internvl3-38b")


def test_profile_entries_for_other_gpus_are_reported_as_unused() -> None:
    found = load_inputs("internvl3-38b")

    assert [(entry.option, entry.gpus) for entry in found.unused] == [("llm", 1)]


def test_a_model_that_omits_options_is_planned_with_the_shipped_profile(tmp_path: Path) -> None:
    model = shipped_model("qwen-image")
    kept = {name: entry for name, entry in model.options.items() if name != "monolith"}
    reduced = model.model_copy(update={"options": kept, "paths": (("llm", "image_generator"),)})
    reduced.write(tmp_path / "mine.json")

    assert [name for name, _ in load_inputs(str(tmp_path / "mine.json")).rates] == ["llm", "image_generator"]


def test_unknown_gpu_types_are_rejected_even_if_the_model_has_no_others() -> None:
    model = shipped_model("qwen-image")
    options = {name: entry.model_copy(update={"gpu": "TPU"}) for name, entry in model.options.items()}

    with pytest.raises(InvalidInputError, match=r"options\.llm\.gpu: unknown GPU type 'TPU': .*H100.*--gpu-types"):
        _built(model.model_copy(update={"options": options}), model.name)


def test_a_profile_of_another_executor_is_rejected() -> None:
    model, profile = shipped_model("qwen-image"), ModelProfile.shipped("qwen-image")
    name, entry = next(iter(model.options.items()))
    mine = entry.model_copy(update={"executor": ExecutorTask(task="LLMTask", settings={"model_id": "a/new"})})
    measured = ExecutorTask(task="LLMTask", settings={"model_id": "a/old"})
    old = profile.model_copy(
        update={
            "options": tuple(
                found.model_copy(update={"executor": measured if found.option == name else None})
                for found in profile.options
            )
        }
    )

    with pytest.raises(InvalidInputError, match=rf"{name} was measured as LLMTask\(model_id='a/old'\), but qwen-image"):
        build_inputs(
            model.model_copy(update={"options": model.options | {name: mine}}),
            shipped_workload(model),
            old,
            GpuCatalog.shipped(),
        )


VISION = """
format: cornserve-planner/model
version: 1
name: vision
components:
  image: {}
  video: {}
  llm: {after: [image, video]}
options:
  whole: {components: [image, video, llm]}
paths:
- [whole]
modalities:
  always: [llm]
  inputs: {image: [image], video: [video]}
"""
PROFILE = """
format: cornserve-planner/profile
version: 1
model: vision
options:
- option: whole
  gpu: core
  gpus: 1
  throughput:
  - rate: {value: 10, unit: requests/s, tag: measured, source: a test}
    mix: [{components: [llm], share: 1}]
  - rate: {value: 5, unit: requests/s, tag: measured, source: a test}
    mix: [{components: [image, llm], share: 1}]
"""


def test_a_model_is_planned_without_the_components_that_no_request_needs(tmp_path: Path) -> None:
    """The executor also encodes videos. Neither the workload nor the profile has any."""
    model = ModelDocument.parse(VISION, "model.yaml")
    workload, profile = tmp_path / "images.jsonl", tmp_path / "profile.yaml"
    profile.write_text(PROFILE)
    image = WorkloadImage(width=224, height=224)
    requests = [
        WorkloadRequest(arrival=second, text_tokens=8, images=(image,) * (second % 2), output_tokens=1)
        for second in range(4)
    ]
    write_requests(workload, requests)

    inputs = build_inputs(
        model, read_workload(workload, model.modalities), ModelProfile.read(profile), GpuCatalog.shipped()
    )

    assert {kind.components for kind in inputs.types} == {frozenset({"llm"}), frozenset({"image", "llm"})}
    assert inputs.conversion.seconds["whole", "image"] == pytest.approx(0.1)
    assert estimate_sources(inputs, {})["whole"].text == "a test"
