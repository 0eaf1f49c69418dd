"""Profiles: every value has a unit, a tag and a source, and published values are as printed."""

from __future__ import annotations

import pytest

from benchmarks.reproduction.published import PublishedFigures
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model.shipped import shipped_model, shipped_models
from cornserve_planner.profiles.gpus import GpuCatalog
from cornserve_planner.profiles.profile import BatchLatency, ModelProfile, shipped_profiles


@pytest.mark.parametrize("name", shipped_models())
def test_a_shipped_profile_has_only_options_of_the_shipped_model(name: str) -> None:
    model, profile = shipped_model(name), ModelProfile.shipped(name)

    assert {entry.option for entry in profile.options} <= model.options.keys()
    assert {entry.gpu for entry in profile.options} <= GpuCatalog.shipped().gpus.keys()
    for entry in profile.options:
        for throughput in entry.throughput:
            for part in throughput.mix:
                assert set(part.components) <= set(model.options[entry.option].components)


@pytest.mark.parametrize("name", shipped_models())
def test_every_option_of_a_shipped_model_has_a_rate(name: str) -> None:
    model, profile = shipped_model(name), ModelProfile.shipped(name)

    for option, entry in model.options.items():
        assert any(found.throughput for found in profile.for_option(option, entry.gpu) if found.gpus == entry.gpus), (
            option
        )


def test_rates_are_those_of_table_1() -> None:
    omni = ModelProfile.shipped("qwen2.5-omni-7b")

    published = {
        entry.option: entry.throughput[0].rate.value
        for entry in omni.options
        if entry.throughput and entry.throughput[0].rate.tag == "published"
    }
    assert published == {
        "image_encoder": 15.64,
        "video_encoder": 1.28,
        "audio_encoder": 34.04,
        "llm": 1.09,
        "audio_generator": 0.28,
    }


def test_unpublished_values_are_tagged_as_predicted_with_their_method() -> None:
    (monolith,) = ModelProfile.shipped("qwen2.5-omni-7b").for_option("monolith")

    rate = monolith.throughput[0].rate
    assert rate.tag == "predicted"
    assert "α = 1" in rate.source
    assert 1 / rate.value == pytest.approx(1 / 15.64 + 1 / 1.28 + 1 / 34.04 + 1 / 1.09 + 1 / 0.28, rel=1e-4)


def test_start_up_is_that_of_table_4() -> None:
    (language,) = (entry for entry in ModelProfile.shipped("qwen2.5-omni-7b").for_option("llm") if entry.startup)

    assert language.startup is not None
    assert language.startup_cached is not None
    assert (language.startup.value, language.startup_cached.value) == (115.2, 106.0)


def test_figure_2_is_as_printed() -> None:
    figures = PublishedFigures.shipped().from_paper("C", "Figure 2")

    assert len(figures) == 4 * 8
    assert [entry.figure.value for entry in figures][:8] == [4.4, 3.5, 2.8, 3.2, 4.4, 2.5, 2.4, 4.2]
    assert all(entry.gpus == {"A100-80GB": 8} for entry in figures)


def test_gpu_types_are_given_to_the_solver_with_memory_and_price() -> None:
    types = {gpu.name: gpu for gpu in GpuCatalog.shipped().types()}

    assert types.keys() >= {"A100-80GB", "H100", "H200", "RTX-4090", "L4", "B200"}
    assert types["A100-80GB"].memory == 80e9
    assert types["A100-80GB"].price is not None
    assert GpuCatalog.shipped()["H100"].peak("fp8") == 1979e12


def test_a_batch_latency_curve_is_interpolated_and_extrapolated() -> None:
    curve = BatchLatency(batch=(1, 4, 8), seconds=(1.0, 2.5, 4.5), tag="measured", source="here")

    assert [curve.at(batch) for batch in (1, 2, 4, 6, 10)] == [1.0, 1.5, 2.5, 3.5, 5.5]


PROFILE = """
format: cornserve-planner/profile
version: 1
model: tiny
options:
  - option: E
    gpu: L4
    throughput:
      - rate: {value: 12, unit: requests/s, tag: measured, source: here}
        mix: [{components: [encoder], share: 0.5}, {components: [encoder, llm], share: 0.5}]
    weights: {value: 1e9, unit: bytes, tag: predicted, source: counted}
    startup: {value: 20, unit: seconds, tag: measured, source: here}
    latency:
      - {batch: [1, 2], seconds: [0.1, 0.2], tag: measured, source: here}
"""


def test_a_written_profile_can_be_read() -> None:
    profile = ModelProfile.parse(PROFILE, "p.yaml")

    assert ModelProfile.parse(profile.dump(), "p.json") == profile


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("value: 12", "value: -12", "options.0.throughput.0.rate.value: must be greater than 0, not -12"),
        ("value: 12", "value: 0", "options.0.throughput.0.rate.value: must be greater than 0, not 0"),
        ("value: 12", "value: .nan", "options.0.throughput.0.rate.value: must be a"),
        ("requests/s", "seconds", "options.0.throughput.0.rate: must be in requests/s, not in seconds"),
        ("requests/s", "tokens/s", "options.0.throughput.0.rate: must be in requests/s, not in tokens/s"),
        ("requests/s", "requests/min", "options.0.throughput.0.rate.unit: must be 'requests/s', 'tokens/s'"),
        ("unit: bytes", "unit: GB", "options.0.weights.unit: must be"),
        ("unit: seconds", "unit: bytes", "options.0.startup: must be in seconds, not in bytes"),
        (
            "tag: measured, source: here}\n        mix",
            "tag: guessed, source: here}\n        mix",
            "rate.tag: must be",
        ),
        ("source: counted", "source: ''", "options.0.weights.source"),
        ("share: 0.5}]", "share: 0.6}]", "options.0.throughput.0: mix: the shares add up to 1.1, not to 1"),
        ("[0.1, 0.2]", "[0.1]", "options.0.latency.0: has 2 batch sizes and 1 durations"),
        ("[1, 2]", "[2, 1]", "options.0.latency.0: batch: the sizes [2, 1] do not ascend"),
        ("gpu: L4", "gpu: L4\n    colour: red", "options.0.colour: is not a field of cornserve-planner/profile"),
        ("version: 1", "version: 7", "version: unsupported version 7: this release reads version 1"),
        ("/profile", "/plan", "format: must be 'cornserve-planner/profile', not 'cornserve-planner/plan'"),
        ("\noptions:", "\noptions:\n  - {option: E, gpu: L4}", "options: E on 1 L4 is given twice"),
    ],
)
def test_an_invalid_profile_is_rejected_with_field_and_reason(before: str, after: str, error: str) -> None:
    assert before in PROFILE

    with pytest.raises(InvalidInputError) as caught:
        ModelProfile.parse(PROFILE.replace(before, after, 1), "p.yaml")
    assert "p.yaml: " in str(caught.value)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ModelProfile.shipped("gpt-2"), "profile: none is shipped for 'gpt-2': give a file with --profile"),
        (lambda: shipped_model("gpt-2"), "model: unknown model 'gpt-2': the shipped models are internvl3-38b"),
        (lambda: GpuCatalog.shipped()["TPU"], "gpu: unknown GPU type 'TPU': use one of A100-80GB"),
        (lambda: GpuCatalog.shipped()["A100-80GB"].peak("fp8"), "dtype: the GPU does not support fp8: use one of bf16"),
        (
            lambda: BatchLatency(batch=(2, 4), seconds=(1.0, 2.0), tag="measured", source="here").at(1),
            r"batch: 1 is outside the measured batch sizes \(2, 4\)",
        ),
    ],
)
def test_unknown_names_are_reported(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()


def test_all_shipped_profiles_belong_to_shipped_models_or_generators() -> None:
    assert set(shipped_profiles()) >= set(shipped_models())
