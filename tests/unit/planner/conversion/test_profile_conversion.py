"""Conversion of a model's profile."""

from __future__ import annotations

import pytest

from cornserve_planner.conversion.profile_conversion import convert_profile, profile_measurements
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.inputs.planning_inputs import build_inputs
from cornserve_planner.model.document import ModelDocument
from cornserve_planner.model.graph import RequestType
from cornserve_planner.model.problem import PlanningProblem
from cornserve_planner.model.request_types import Modalities
from cornserve_planner.model.shipped import shipped_model
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import ModelProfile
from cornserve_planner.solve.budget import Budget
from cornserve_planner.solve.optimization import max_rate
from cornserve_planner.workload.added_modalities import AddedModalities, add_modalities
from cornserve_planner.workload.clients import ClientPool
from cornserve_planner.workload.document import Workload
from cornserve_planner.workload.servegen import generate_requests


def _servegen(modalities: Modalities | None) -> Workload:
    assert modalities is not None
    requests = generate_requests(ClientPool.servegen_images(), 300, rate=10, seed=1)
    known_inputs, known_outputs = modalities.inputs.keys(), modalities.outputs.keys()
    added = AddedModalities(
        video=0.5 if "video" in known_inputs else 0,
        audio=0.5 if "audio" in known_inputs else 0,
        audio_output=0.2 if "audio" in known_outputs else 0,
    )
    return Workload.of_requests(add_modalities(requests, added, seed=1), modalities)


def _problem(name: str) -> PlanningProblem:
    model = shipped_model(name)
    return build_inputs(model, _servegen(model.modalities), ModelProfile.shipped(name), GpuCatalog.shipped()).problem


def test_seconds_are_those_of_the_published_rates() -> None:
    model = shipped_model("qwen2.5-omni-7b")

    found = convert_profile(model.graph(), ModelProfile.shipped(model.name), _servegen(model.modalities))

    assert found.seconds["llm", "llm"] == pytest.approx(1 / 1.09)
    assert found.seconds["monolith", "audio_generator"] == pytest.approx(1 / 0.28, rel=1e-5)
    assert all(factor == pytest.approx(1, rel=1e-5) for factor in found.factors.values())


@pytest.mark.parametrize("name", ["qwen2.5-omni-7b", "qwen2.5-vl-32b", "internvl3-38b", "llava-1.5-7b"])
def test_a_shipped_model_can_be_planned_for_the_generated_workload(name: str) -> None:
    plan = max_rate(_problem(name), Budget(gpus=8))

    assert plan.proven
    assert plan.rate > 0
    assert plan.gpus <= 8


def test_an_option_fits_its_gpus_with_the_cache_of_a_request() -> None:
    found = _problem("qwen2.5-vl-32b")

    assert not found.excluded
    assert found.memory["llm"] == pytest.approx(65.5255e9 / 2 + 64 * 2 * 8 * 128 * 11_700 * 2 / 2, rel=1e-3)


def test_an_option_that_was_not_profiled_is_rejected_by_name() -> None:
    model = shipped_model("qwen3-omni-30b-a3b")

    profile = ModelProfile.shipped(model.name).restricted_to({"encoders", "llm", "vocoder"})
    with pytest.raises(InvalidInputError, match=r"options\.talker: was not measured"):
        convert_profile(model.graph(), profile, _servegen(model.modalities))


def test_the_planner_chooses_the_degree_of_tensor_parallelism() -> None:
    rate = "rate: {value: %g, unit: requests/s, tag: measured, source: test}"
    entry = "  - {option: llm, gpu: H100, gpus: %d, throughput: [{" + rate + "}]}"
    profile = "format: cornserve-planner/profile\nversion: 1\nmodel: tiny\noptions:\n"
    profile += "\n".join(entry % measured for measured in ((2, 1.0), (4, 3.0)))
    model = ModelDocument.parse(
        "format: cornserve-planner/model\nversion: 1\nname: tiny\ncomponents: {llm: {}}\n"
        "options: {llm: {components: [llm], tensor_parallel: [2, 4], gpu: H100}}\npaths: [[llm]]\n",
        "model.yaml",
    )
    workload = Workload({RequestType("text", frozenset({"llm"})): 1.0})
    problem = build_inputs(model, workload, ModelProfile.parse(profile, "profile.yaml"), GpuCatalog.shipped()).problem

    assert max_rate(problem, Budget(gpus=10)).replicas == {"llm-tp4": 2, "llm-tp2": 1}
    assert max_rate(problem, Budget(gpus=2)).replicas == {"llm-tp2": 1}


MODEL = ModelDocument.parse(
    """
format: cornserve-planner/model
version: 1
name: tiny
components: {encoder: {}, llm: {after: [encoder]}}
options:
  E: {components: [encoder]}
  L: {components: [llm]}
  EL: {components: [encoder, llm], gpus: 2}
paths: [[EL], [E, L]]
""",
    "m.yaml",
)
PROFILE = """
format: cornserve-planner/profile
version: 1
model: tiny
options:
  - {option: E, gpu: L4, throughput: [{rate: &rate {value: 10, unit: requests/s, tag: measured, source: here}}]}
  - {option: L, gpu: L4, throughput: [{rate: {<<: *rate, value: 2}}]}
  - option: EL
    gpu: L4
    gpus: 2
    throughput:
      - rate: {<<: *rate, value: 4}
        mix: [{components: [encoder, llm], share: 0.5}, {components: [llm], share: 0.5}]
  - {option: EL, gpu: L4, throughput: [{rate: {<<: *rate, value: 1}}]}
"""


def test_a_mix_becomes_a_measurement_and_other_numbers_of_gpus_are_ignored() -> None:
    found, types = profile_measurements(MODEL.graph(), ModelProfile.parse(PROFILE, "p.yaml"))

    assert [(measurement.option, measurement.rate) for measurement in found] == [("E", 10), ("L", 2), ("EL", 4)]
    assert [types.types[name].components for name in found[2].mix] == [{"encoder", "llm"}, {"llm"}]


def test_a_given_factor_replaces_the_profile() -> None:
    workload = Workload({MODEL_TYPE: 1.0})
    profile = ModelProfile.parse(PROFILE, "p.yaml")

    measured = convert_profile(MODEL.graph(), profile, workload)
    assumed = convert_profile(MODEL.graph(), profile, workload, {"EL": 3.0})

    assert measured.factors["EL"] == pytest.approx(0.25 / (0.5 + 0.05))
    assert assumed.factors["EL"] == 3.0


MODEL_TYPE = Modalities(always=("encoder", "llm")).request_type(frozenset({"encoder", "llm"}))


@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        (
            "[{components: [encoder, llm]",
            "[{components: [encodr, llm]",
            "options.2.throughput.0.mix.0.components: unknown component 'encodr': use one of encoder, llm",
        ),
        ("option: L,", "option: LL,", "options.1.option: unknown option 'LL': use one of E, L, EL"),
        (
            "  - {option: EL, gpu: L4, thr",
            "  - {option: EL, gpu: H100, gpus: 2, thr",
            "options.EL.gpu: is not set in the model, and the profile has entries for L4, H100: choose one",
        ),
    ],
)
def test_a_profile_that_does_not_match_the_model_is_rejected(right: str, wrong: str, error: str) -> None:
    assert right in PROFILE
    profile = ModelProfile.parse(PROFILE.replace(right, wrong), "p.yaml")

    with pytest.raises(InvalidInputError) as refused:
        convert_profile(MODEL.graph(), profile, Workload({MODEL_TYPE: 1.0}))

    assert str(refused.value) == error


def test_a_duplicate_component_is_rejected() -> None:
    with pytest.raises(InvalidInputError, match=r"mix\.1\.components: 'llm' is given twice"):
        ModelProfile.parse(PROFILE.replace("{components: [llm]", "{components: [llm, llm]"), "p.yaml")
