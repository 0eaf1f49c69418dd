"""Makes a LLaVA-1.5 of two vision and two language layers with random weights.

python -m tests.models.tiny_llava DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import PATCH, TILE, chat_template, save, text_config, tokenizer, vision_config


def make(directory: Path) -> None:
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    processor = _processor()
    config = LlavaConfig(
        text_config=text_config(processor.tokenizer, model_type="llama"),
        vision_config=vision_config(model_type="clip_vision_model", num_hidden_layers=3, projection_dim=32),
        image_token_index=processor.image_token_id,
        image_seq_length=(TILE // PATCH) ** 2,
    )
    save(LlavaForConditionalGeneration, config, processor, directory, {"vision_tower.": "vision_tower.vision_model."})


def _processor() -> Any:
    from transformers import CLIPImageProcessor, LlavaProcessor

    return LlavaProcessor(
        image_processor=CLIPImageProcessor(size={"shortest_edge": TILE}, crop_size={"height": TILE, "width": TILE}),
        tokenizer=tokenizer(["<image>"]),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,  # the class token
        chat_template=chat_template("<image>\n"),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
