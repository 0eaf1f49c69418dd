"""InternVL 3, with and without its encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cornserve_executors.base import InvalidRequestError
from tests.images import as_image, noise
from tests.integration.multimodal.encoder import LocalEncoder
from tests.integration.multimodal.media_chats import TILE_CONTENTS, with_options
from tests.integration.multimodal.media_tests import check_paths, generate
from tests.integration.multimodal.multimodal_tests import MARKS, MultimodalTests

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine

pytestmark = [pytest.mark.slow, *MARKS]


@pytest.fixture(scope="module")
def model(tiny_internvl: Path) -> Path:
    return tiny_internvl


class TestInternVL(MultimodalTests):
    async def test_images_with_options_get_the_tokens_of_vllm_on_all_paths_concurrently(
        self, full_model: LLMEngine, language_only: LLMEngine, encoder: LocalEncoder
    ) -> None:
        await check_paths(TILE_CONTENTS, full_model, language_only, encoder)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"max_patches": 5}, "max_patches: 5 is not within the model's limits: give 1 to 4"),
            ({"max_pixels": 5000}, "max_pixels: the model does not have this option"),
        ],
    )
    @pytest.mark.parametrize("kind", ["r", "e"])
    async def test_options_that_the_model_does_not_have_are_refused(
        self, full_model: LLMEngine, encoder: LocalEncoder, options: dict[str, int], reason: str, kind: str
    ) -> None:
        content = with_options([as_image(noise(1, 60, 90)), "?"], **options)

        with pytest.raises(InvalidRequestError, match=f"mm_processor_kwargs.{reason}"):
            await generate(full_model, content, kind, encoder)
