"""Models with encoders of images: all paths generate the tokens of the monolith, which is stock vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.images import noise
from tests.integration.multimodal.chats import CONTENTS, Part, combinations
from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.engine import running_llm
from tests.integration.multimodal.media_chats import FRAME_CONTENTS, OPTION_CONTENTS, VIDEO_CONTENTS, MediaContent
from tests.integration.multimodal.media_tests import check_paths
from tests.integration.multimodal.multimodal_tests import MARKS, generate
from tests.integration.multimodal.transformers_reference import TransformersReference
from tests.models.tiny_families import FAMILIES, TinyFamily

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = MARKS

OTHER: Sequence[Part] = [noise(100, 112, 84), *CONTENTS["one image"][1:]]

MODULES = {"qwen25vl", "internvl", "qwen25omni", "qwen3omni"}
"""Families with a test module, which serves them on every path."""

RESIZING = {"qwen2vl", "qwen25vl", "qwen3vl", "qwen25omni", "qwen3omni"}
"""Families with options of frames and pixels."""


@pytest.mark.slow
@pytest.mark.parametrize("family", [family for family in FAMILIES if family.name not in MODULES], ids=str)
async def test_the_hybrid_path_generates_the_tokens_of_the_monolith(
    family: TinyFamily, fork_variables: dict[str, str], tmp_path: Path
) -> None:
    async with running_encoder(family.path, tmp_path, modality=family.vision) as encoder:
        with running_llm(family.path, fork_variables, with_enc=True) as engine:
            expected = await tokens_of_monolith(engine)

            assert await generate(engine, OTHER) != expected["one image"]
            await check_equal(expected, engine, encoder, "re")
            if "video" in family.vision:
                await check_paths(_videos(family), engine, None, encoder)


@pytest.mark.families
@pytest.mark.parametrize("family", FAMILIES, ids=str)
async def test_all_paths_generate_the_tokens_of_the_monolith(
    family: TinyFamily, fork_variables: dict[str, str], tmp_path: Path
) -> None:
    async with running_encoder(family.path, tmp_path, modality=family.vision) as encoder:
        with running_llm(family.path, fork_variables, with_enc=True) as engine:
            expected = await tokens_of_monolith(engine)
            await check_equal(expected, engine, encoder, "re")
            with running_llm(family.path, fork_variables, with_enc=False) as language_only:
                await check_equal(expected, language_only, encoder, "e")
                counts = await language_only.parameter_counts()
                if "video" in family.vision:
                    await check_paths(_videos(family), engine, language_only, encoder)

    assert {name for name, number in counts.items() if number} == {"language_model"}
    assert expected["one image"] == TransformersReference(family.path).generate(CONTENTS["one image"])


def _videos(family: TinyFamily) -> dict[str, MediaContent]:
    return VIDEO_CONTENTS | (OPTION_CONTENTS if family.name in RESIZING else FRAME_CONTENTS)


async def tokens_of_monolith(engine: LLMEngine) -> dict[str, list[int]]:
    """Returns the tokens of each request alone, with raw images."""
    return {name: await generate(engine, content) for name, content in CONTENTS.items()}


async def check_equal(expected: dict[str, list[int]], engine: LLMEngine, encoder: LocalEncoder, choice: str) -> None:
    """Checks all combinations of raw and encoded images in concurrent requests."""
    jobs = [(name, kind) for name, content in CONTENTS.items() for kind in combinations(content, choice)]

    results = await asyncio.gather(*(generate(engine, CONTENTS[name], kind, encoder) for name, kind in jobs))

    assert results == [expected[name] for name, _ in jobs]
