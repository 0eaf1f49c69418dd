"""The bytes at each cut of a model: [H] Tables 2 and 3, Theorem 1, and the feasibility of a transfer (Equation 4)."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.reproduction.markdown import prose, table
from benchmarks.reproduction.published import PublishedFigures
from benchmarks.reproduction.transfer_feasibility import (
    PCIE_4,
    TransferRatio,
    embedding_bytes,
    kv_cache_bytes,
    transfer_feasibility,
)
from cornserve_planner.profiles.architecture import Architectures, DecoderShape

TEXT_TOKENS = 128
BATCH = 128
"""Images in [H Table 6]."""
MIB, MB = 2**20, 1e6


class CutRow(NamedTuple):
    """A printed row: MB of keys and values and of embeddings, R with all heads, and R."""

    name: str
    model: str
    vision: int
    kv: str
    embedding: str
    all_heads: str
    ratio: str


COLUMNS = ("keys, values", "embeddings", "R, all heads", "R")
PRINTED = (
    CutRow("LLaVA-7B", "llava-1.5-7b", 576, "352", "4.5", "78", "78"),
    CutRow("LLaVA-13B", "llava-1.5-13b", 576, "550", "5.6", "98", "98"),
    CutRow("LLaVA-34B", "llava-34b", 576, "150", "7.3", "147", "21"),
    CutRow("Qwen2.5-VL-7B", "qwen2.5-vl-7b", 1024, "83", "7.0", "64", "12"),
    CutRow("Qwen-VL-72B", "qwen2.5-vl-72b", 576, "215", "9.0", "196", "24"),
)


def section() -> str:
    seven, qwen = TransferRatio(_decoder("llava-1.5-7b"), 576, TEXT_TOKENS), _ratio(PRINTED[3])
    return prose("transfer").format(
        kv_mib=kv_cache_bytes(seven.decoder, 704) / MIB,
        kv_mb=seven.kv_bytes / MB,
        emb_mib=embedding_bytes(seven.decoder.hidden, 576) / MIB,
        emb_mb=seven.embedding_bytes / MB,
        ratio=seven.value,
        milliseconds=PCIE_4.seconds(seven.embedding_bytes) * 1e3,
        qwen_kv=qwen.kv_bytes / MIB,
        qwen_ratio=qwen.value,
        models=table(
            ["model", *(name for what in COLUMNS for name in (f"{what}: printed", "computed"))],
            map(_row, PRINTED),
        ),
        **_dynamic(),
        **_feasibility(seven.embedding_bytes),
    )


def _dynamic() -> dict[str, float]:
    """Returns the numbers for 2,048 image tokens of Qwen2.5-VL-7B."""
    decoder = _decoder("qwen2.5-vl-7b")
    return {
        "dynamic_mib": TransferRatio(decoder, 2048, TEXT_TOKENS).embedding_bytes / MIB,
        "dynamic_ratio": TransferRatio(decoder, 2048, TEXT_TOKENS).value,
        "least_ratio": TransferRatio(decoder, 2048).value,
    }


def _feasibility(embedding: float) -> dict[str, float]:
    """Returns the numbers of [H Equation 4] for a batch of `BATCH` images, and those of [H Table 6]."""
    table_6 = {entry.what: entry.figure.value for entry in PublishedFigures.shipped().from_paper("H", "Table 6")}
    vision, printed = table_6["vision encoding"], table_6["feature transfer"]
    computed = transfer_feasibility(PCIE_4, BATCH * embedding, vision)
    return {
        "batch": BATCH,
        "batch_mb": BATCH * embedding / MB,
        "computed_ms": computed.seconds * 1e3,
        "computed": computed.overhead,
        "vision": vision,
        "printed": printed,
        "measured": printed / vision,
        "slower": printed / computed.seconds,
        "gigabytes": BATCH * embedding / printed / 1e9,
    }


def _decoder(model: str) -> DecoderShape:
    return Architectures.shipped()[model].decoder()


def _ratio(row: CutRow) -> TransferRatio:
    return TransferRatio(_decoder(row.model), row.vision, TEXT_TOKENS)


def _row(row: CutRow) -> list[object]:
    computed = _ratio(row)
    sizes = [row.kv, f"{computed.kv_bytes / MIB:.0f}", row.embedding, f"{computed.embedding_bytes / MIB:.1f}"]
    return [row.name, *sizes, row.all_heads, f"{computed.with_all_heads:.1f}", row.ratio, f"{computed.value:.1f}"]
