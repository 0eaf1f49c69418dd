"""LoRA adapters of a multimodal model, with and without its encoder: tokens equal those of merged weights."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cornserve_executors.base import ExecutorStartError
from tests.integration.multimodal.chats import CONTENTS, Part, chat, images_in
from tests.integration.multimodal.encoder import LocalEncoder
from tests.integration.multimodal.multimodal_tests import MARKS, new_id
from tests.integration.multimodal.transformers_reference import TransformersReference
from tests.models.lora_adapters import make_adapter, merge

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = [pytest.mark.slow, *MARKS]


@pytest.fixture(scope="module")
def model(tiny_qwen25vl: Path) -> Path:
    return tiny_qwen25vl


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    layers = ["self_attn.q_proj", "self_attn.v_proj", "layers.0.mlp.down_proj"]
    return make_adapter(model, tmp_path_factory.mktemp("adapters") / "adapter", layers, seed=1, scale=2.0)


@pytest.fixture(scope="module")
def lora_modules(adapter: Path) -> dict[str, str]:
    return {"adapter": str(adapter)}


@pytest.fixture(scope="module")
def adapted(model: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    transformers = TransformersReference(merge(model, adapter, tmp_path_factory.mktemp("merged") / "model"))
    return {name: transformers.generate(content) for name, content in CONTENTS.items()}


async def generate(
    engine: LLMEngine, content: Sequence[Part], encoder: LocalEncoder | None, lora: str | None
) -> list[int]:
    kind = "" if encoder is None else "e" * len(images_in(content))
    embeddings = [] if encoder is None else await encoder.encode_all(images_in(content), kind)
    request = chat(content, kind) if lora is None else chat(content, kind).with_lora(lora)
    return (await engine.generate(request, new_id(), embeddings=embeddings)).token_ids


async def test_tokens_equal_those_of_merged_weights(
    full_model: LLMEngine,
    language_only: LLMEngine,
    encoder: LocalEncoder,
    lora_modules: dict[str, str],
    expected: dict[str, list[int]],
    adapted: dict[str, list[int]],
) -> None:
    """Requests with and without the adapter, and with raw and encoded images, run together."""
    for engine in (full_model, language_only):
        await engine.load_adapters(lora_modules)
    jobs = [
        (engine, name, images_encoded_by, lora)
        for engine, images_encoded_by in ((full_model, None), (full_model, encoder), (language_only, encoder))
        for name in CONTENTS
        for lora in (None, "adapter")
    ]

    results = await asyncio.gather(
        *(generate(engine, CONTENTS[name], images_encoded_by, lora) for engine, name, images_encoded_by, lora in jobs)
    )

    assert results == [(expected if lora is None else adapted)[name] for _, name, _, lora in jobs]
    assert all(expected[name] != adapted[name] for name in CONTENTS)


async def test_an_adapter_of_the_encoder_is_refused(
    full_model: LLMEngine, language_only: LLMEngine, model: Path, tmp_path: Path
) -> None:
    vision = make_adapter(model, tmp_path / "vision", ["visual.blocks.0.attn.proj"], seed=2)

    for engine in (full_model, language_only):
        with pytest.raises(ExecutorStartError, match=r"the model has no layer 'visual\.blocks\.0\.attn\.proj'"):
            await engine.load_adapters({"vision": str(vision)})
