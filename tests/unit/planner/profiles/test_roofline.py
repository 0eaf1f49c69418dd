"""Roofline predictions: their counts of FLOPs and bytes, and their errors."""

from __future__ import annotations

import pytest

from benchmarks.reproduction.accuracy import accuracy, calibrated, comparisons
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.profiles.architecture import Architectures, DecoderShape
from cornserve_planner.profiles.gpus import GpuCatalog, GpuDatasheet
from cornserve_planner.profiles.roofline import (
    ComputeWork,
    GpuMachine,
    RooflineEfficiency,
    batch_limit,
    decode_seconds,
    decode_step,
    denoise,
    encode,
    generate_seconds,
    predicted_rate,
    prefill,
)

MODELS, GPUS = Architectures.shipped(), GpuCatalog.shipped()
A100 = GpuMachine(GPUS["A100-80GB"])


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("llava-1.5-7b", 6.74),
        ("llava-1.5-13b", 13.02),
        ("llava-34b", 34.39),
        ("qwen2.5-vl-7b", 7.62),
        ("qwen2.5-vl-32b", 32.76),
        ("qwen2.5-vl-72b", 72.71),
        ("qwen3-omni-30b-a3b", 30.53),
    ],
)
def test_language_models_have_the_number_of_parameters_in_their_names(model: str, billions: float) -> None:
    assert MODELS[model].decoder().parameters / 1e9 == pytest.approx(billions, abs=0.02)


def test_vision_encoders_have_the_published_number_of_parameters() -> None:
    assert MODELS["internvl3-38b"].encoder().parameters / 1e9 == pytest.approx(5.5, abs=0.05)
    assert MODELS["llava-1.5-7b"].encoder().parameters / 1e9 == pytest.approx(0.30, abs=0.01)


def test_a_sparse_model_computes_with_a_tenth_of_its_parameters() -> None:
    omni = MODELS["qwen3-omni-30b-a3b"].decoder()

    assert omni.active_parameters / 1e9 == pytest.approx(2.7, abs=0.1)


def test_the_time_of_work_is_the_maximum_of_compute_and_memory_time() -> None:
    machine = GpuMachine(GPUS["A100-80GB"], efficiency=RooflineEfficiency(1, 1))

    assert machine.seconds(ComputeWork(312e12, 1)) == pytest.approx(1)
    assert machine.seconds(ComputeWork(1, 2.039e12)) == pytest.approx(1)
    assert (
        GpuMachine(GPUS["A100-80GB"], count=2, efficiency=RooflineEfficiency(1, 1)).seconds(ComputeWork(312e12, 1))
        == 0.5
    )
    assert machine.utilization(ComputeWork(156e12, 0), 1.0) == 0.5


def test_prefill_is_compute_bound_and_decode_is_memory_bound() -> None:
    llm = MODELS["qwen2.5-vl-7b"].decoder()

    def arithmetic(work: ComputeWork) -> bool:
        return work.flops / A100.gpu.peak() > work.bytes / A100.gpu.memory_speed()

    assert arithmetic(prefill(llm, 1000))
    assert not arithmetic(decode_step(llm, 1000, batch=32))
    assert arithmetic(encode(MODELS["qwen2.5-vl-7b"].encoder(), 600))


def test_windows_make_attention_linear_in_the_length_of_a_video() -> None:
    internvl = MODELS["internvl3-38b"].encoder()

    assert encode(internvl, 2560).flops == pytest.approx(10 * encode(internvl, 256).flops, rel=1e-6)


def test_the_batch_size_is_limited_by_the_cache() -> None:
    llm = MODELS["qwen2.5-vl-32b"].decoder()

    assert batch_limit(llm, 11_700, A100) == 2
    assert batch_limit(llm, 11_700, GpuMachine(GPUS["A100-80GB"], count=2)) == 25
    assert batch_limit(llm, 100, GpuMachine(GPUS["H200"])) == 256
    with pytest.raises(InvalidInputError, match=r"gpu: weights of 65.5 GB and a cache of 0.0 GB exceed 21.6 GB on 1"):
        batch_limit(llm, 100, GpuMachine(GPUS["L4"]))


def test_a_second_gpu_more_than_doubles_decoding_if_memory_was_short() -> None:
    llm = MODELS["qwen2.5-vl-32b"].decoder()

    one, two = (decode_seconds(llm, 11_600, 100, GpuMachine(GPUS["A100-80GB"], count)) for count in (1, 2))

    assert one > 10 * two


def test_fewer_bits_are_faster() -> None:
    llm = MODELS["qwen2.5-vl-7b"].decoder()

    seconds = [generate_seconds(llm, 1000, 100, GpuMachine(GPUS["H100"], dtype=dtype)) for dtype in ("bf16", "fp8")]

    assert seconds[0] == pytest.approx(2 * seconds[1], rel=0.2)


def test_a_prediction_has_a_tag_and_its_assumptions() -> None:
    figure = predicted_rate(0.25, A100, "an encoder")

    assert (figure.value, figure.unit, figure.tag) == (4, "requests/s", "predicted")
    assert figure.source == "roofline of an encoder at 50% of peak FLOP/s and 70% of peak bandwidth"


def test_steps_and_passes_multiply() -> None:
    qwen = MODELS["qwen-image"].diffusion()
    positions = qwen.positions(512, 512)

    assert positions == 1024
    assert denoise(qwen, positions, 20).flops == pytest.approx(20 * denoise(qwen, positions, 1).flops)
    assert MODELS["wan2.1-i2v-14b"].diffusion().positions(720, 544, 81) == 45 * 34 * 21


def test_every_published_value_with_known_requests_is_predicted() -> None:
    found = comparisons()

    table_1 = [comparison for comparison in found if comparison.source == "[C Table 1]"]
    assert len(table_1) == 12
    assert {comparison.kind for comparison in found} == {
        "encoder",
        "language model",
        "diffusion",
        "diffusion on several GPUs",
    }
    for comparison in found:
        assert comparison.published > 0
        assert comparison.predicted > 0


def test_the_error_of_the_predictor_is_as_documented() -> None:
    """Typical and worst factors of the documentation. Changes of the predictor may only reduce them."""
    bounds = {
        "language model": (1.76, 2.46),
        "diffusion": (1.55, 2.9),
        "encoder": (3.3, 9.0),
        "diffusion on several GPUs": (2.5, 13.3),
    }

    for found in accuracy(comparisons()):
        typical, worst = bounds.pop(found.kind)
        assert found.typical < typical
        assert found.worst < worst
    assert not bounds


def test_leave_one_out_calibration_improves_the_mean_error() -> None:
    found = comparisons()

    for before, after in zip(accuracy(found), accuracy(calibrated(found)), strict=True):
        assert after.typical < before.typical, before.kind


def test_internvls_video_rate_is_above_what_an_a100_can_compute() -> None:
    (video,) = (
        comparison
        for comparison in comparisons()
        if comparison.model == "internvl3-38b" and "video encoder" in comparison.what
    )

    assert video.utilization > 1


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RooflineEfficiency(compute=1.5), "efficiency.compute: must be above 0 and at most 1, not 1.5"),
        (lambda: RooflineEfficiency(bandwidth=0), "efficiency.bandwidth: must be above 0 and at most 1, not 0"),
        (lambda: predicted_rate(0, A100, "nothing"), "seconds: must be a finite number greater than 0, not 0"),
    ],
)
def test_invalid_assumptions_are_rejected(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()


def test_indivisible_numbers_of_heads_are_rejected() -> None:
    fields = MODELS["llava-34b"].decoder().model_dump() | {"kv_heads": 5}

    with pytest.raises(ValueError, match="56 heads cannot share 5 key-value heads evenly"):
        DecoderShape(**fields)


def test_gpus_without_peak_performance_have_no_predictions() -> None:
    slot = GpuDatasheet.model_validate(
        {"memory": {"value": 1e9, "unit": "bytes", "tag": "measured", "source": "the machine"}}
    )
    with pytest.raises(InvalidInputError, match="predictions need the GPU's FLOP/s"):
        slot.peak()
    with pytest.raises(InvalidInputError, match="predictions need the bandwidth"):
        slot.memory_speed()
