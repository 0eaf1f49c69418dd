"""Makes a LLaVA-OneVision of two vision and two language layers with random weights.

It splits an image into up to three tiles.

python -m tests.models.tiny_llava_onevision DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import TILE, TILE_PATCHES, chat_template, save, text_config, tokenizer, vision_config

GRIDS = [[TILE * rows, TILE * columns] for rows, columns in ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1))]


def make(directory: Path) -> None:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

    processor = _processor()
    config = LlavaOnevisionConfig(
        text_config=text_config(processor.tokenizer, model_type="qwen2"),
        vision_config=vision_config(model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=processor.image_token_id,
        video_token_index=processor.video_token_id,
        image_grid_pinpoints=GRIDS,
    )
    names = {"vision_tower.": "vision_tower.vision_model."}
    save(LlavaOnevisionForConditionalGeneration, config, processor, directory, names)


def _processor() -> Any:
    from transformers import LlavaOnevisionImageProcessor, LlavaOnevisionProcessor, LlavaOnevisionVideoProcessor

    size = {"height": TILE, "width": TILE}
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=GRIDS),
        tokenizer=tokenizer(["<image>", "<video>"]),
        video_processor=LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=TILE_PATCHES,
        vision_feature_select_strategy="full",
        chat_template=chat_template("<image>\n", video="<video>\n"),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
