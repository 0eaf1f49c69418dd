"""Bytes between executors, and Theorem 1 of [H] for the models of its Table 3."""

from __future__ import annotations

import math

import pytest

from benchmarks.reproduction.transfer_feasibility import (
    PCIE_4,
    NetworkLink,
    TransferRatio,
    embedding_bytes,
    kv_cache_bytes,
    transfer_feasibility,
)
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.profiles.architecture import Architectures

MIB = 2**20
MODELS = Architectures.shipped()


def test_a_request_of_a_7b_model_transfers_the_printed_bytes() -> None:
    """[H Table 2]: about 350 MB of keys and values, 4.5 MB of embeddings."""
    llava = MODELS["llava-1.5-7b"].decoder()

    assert kv_cache_bytes(llava, 576 + 128) == 2 * 32 * 32 * 128 * 704 * 2
    assert kv_cache_bytes(llava, 576 + 128) / MIB == pytest.approx(352)
    assert embedding_bytes(llava.hidden, 576) / MIB == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("model", "vision_tokens", "kv", "embeddings", "with_all_heads", "ratio"),
    [
        ("llava-1.5-7b", 576, 352.0, 4.5, 78.2, 78.2),
        ("llava-1.5-13b", 576, 550.0, 5.625, 97.8, 97.8),
        ("llava-34b", 576, 165.0, 7.875, 146.7, 20.95),
        ("qwen2.5-vl-7b", 1024, 63.0, 7.0, 63.0, 9.0),
        ("qwen2.5-vl-72b", 576, 220.0, 9.0, 195.6, 24.44),
    ],
)
def test_the_ratios_of_table_3_follow_from_the_models_configurations(
    model: str, vision_tokens: int, kv: float, embeddings: float, with_all_heads: float, ratio: float
) -> None:
    """[H Table 3] differs from its Eq. 2 in two rows: LLaVA-34B (other dimensions) and Qwen2.5-VL-7B (83 MB, 12×)."""
    found = TransferRatio(MODELS[model].decoder(), vision_tokens, 128)

    assert found.kv_bytes / MIB == pytest.approx(kv, rel=1e-3)
    assert found.embedding_bytes / MIB == pytest.approx(embeddings, rel=1e-3)
    assert found.with_all_heads == pytest.approx(with_all_heads, rel=1e-3)
    assert found.value == pytest.approx(ratio, rel=1e-3)


def test_the_ratio_grows_with_depth_and_not_with_width() -> None:
    llava, larger = (MODELS[name].decoder() for name in ("llava-1.5-7b", "llava-1.5-13b"))

    assert TransferRatio(llava, 576).value == 2 * llava.layers
    assert TransferRatio(larger, 576).value == 2 * larger.layers
    wider = llava.model_copy(update={"hidden": 8192, "heads": 64, "kv_heads": 64})
    assert TransferRatio(wider, 576, 128).value == TransferRatio(llava, 576, 128).value


def test_pcie_is_fast_enough_for_embeddings_but_not_for_keys_and_values() -> None:
    """[H Eq. 4] with 53 ms of encoding per image: 6.82 s for a batch of 128 [H Table 6]."""
    ratio = TransferRatio(MODELS["llava-1.5-7b"].decoder(), 576, 128)

    embeddings = transfer_feasibility(PCIE_4, ratio.embedding_bytes, 6.82 / 128, limit=0.01)
    keys_and_values = transfer_feasibility(PCIE_4, ratio.kv_bytes, 6.82 / 128, limit=0.01)

    assert embeddings.feasible
    assert embeddings.seconds == pytest.approx(0.19e-3, rel=0.01)
    assert not keys_and_values.feasible
    assert transfer_feasibility(
        NetworkLink("just enough", keys_and_values.needed * 1.001), ratio.kv_bytes, 6.82 / 128, limit=0.01
    ).feasible


def test_a_link_with_too_long_a_latency_is_never_fast_enough() -> None:
    assert transfer_feasibility(NetworkLink("moon", 1e12, latency=1.3), 1e6, 1.0).needed == math.inf


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: NetworkLink("l", -1), "bandwidth: must be a finite number greater than 0, not -1"),
        (
            lambda: NetworkLink("l", 1, latency=float("nan")),
            "latency: must be a finite number of at least 0, not nan",
        ),
        (lambda: embedding_bytes(0, 5), "hidden: must be a finite number greater than 0, not 0"),
        (
            lambda: TransferRatio(MODELS["llava-1.5-7b"].decoder(), 576, -1),
            "text_tokens: must be a finite number of at least 0, not -1",
        ),
        (
            lambda: TransferRatio(MODELS["llava-1.5-7b"].decoder(), 0),
            "vision_tokens: must be a finite number greater than 0",
        ),
        (lambda: transfer_feasibility(PCIE_4, 1, 0), "producer_seconds: must be a finite number greater than 0, not 0"),
        (lambda: MODELS["gpt-2"], "model: unknown model 'gpt-2': use one of"),
        (lambda: MODELS["flux.1-dev"].decoder("llm"), "component: 'llm' is not a DecoderShape; the components are dit"),
    ],
)
def test_invalid_transfers_are_rejected(make: object, error: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInputError, match=error):
        make()
