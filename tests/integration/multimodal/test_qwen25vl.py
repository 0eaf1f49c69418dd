"""Qwen2.5-VL, with and without its encoder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.integration.multimodal.encoder import LocalEncoder, running_encoder
from tests.integration.multimodal.media_chats import OPTION_CONTENTS, VIDEO_CONTENTS
from tests.integration.multimodal.media_tests import check_paths
from tests.integration.multimodal.multimodal_tests import MARKS, MultimodalTests

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = MARKS


@pytest.fixture(scope="module")
def model(tiny_qwen25vl: Path) -> Path:
    return tiny_qwen25vl


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder(model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalEncoder]:
    async with running_encoder(model, tmp_path_factory.mktemp("slab"), modality=["image", "video"]) as encoder:
        yield encoder


class TestQwen25VL(MultimodalTests):
    async def test_chats_with_videos_and_options_get_the_tokens_of_vllm_on_all_paths_concurrently(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        await check_paths(VIDEO_CONTENTS | OPTION_CONTENTS, full_model, language_only, encoder)
