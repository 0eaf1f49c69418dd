"""Makes a Mistral 3 of two vision and two language layers with random weights.

python -m tests.models.tiny_mistral3 DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import PATCH, chat_template, save, text_config, tokenizer, vision_config

MERGED = 2
"""Patches of each row and column that become a token."""
LONGEST_EDGE = 448


def make(directory: Path) -> None:
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    processor = _processor()
    config = Mistral3Config(
        text_config=text_config(processor.tokenizer, model_type="mistral", head_dim=32),
        vision_config=vision_config(model_type="pixtral", head_dim=32, image_size=LONGEST_EDGE),
        image_token_index=processor.image_token_id,
        spatial_merge_size=MERGED,
        tie_word_embeddings=False,
    )
    save(Mistral3ForConditionalGeneration, config, processor, directory)


def _processor() -> Any:
    from transformers import PixtralImageProcessor, PixtralProcessor

    return PixtralProcessor(
        image_processor=PixtralImageProcessor(size={"longest_edge": LONGEST_EDGE}, patch_size=PATCH),
        tokenizer=tokenizer(["[IMG]", "[IMG_BREAK]", "[IMG_END]"]),
        patch_size=PATCH,
        spatial_merge_size=MERGED,
        chat_template=chat_template("[IMG]"),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
