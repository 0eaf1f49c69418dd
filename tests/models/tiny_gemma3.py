"""Makes a Gemma 3 of two vision and two language layers with random weights.

The logits have separate weights: with those of the embeddings, the model would repeat one token.
An image is four tokens. Newlines next to it are merged into one token, as by Gemma's tokenizer.

python -m tests.models.tiny_gemma3 DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.tiny_family import TILE, chat_template, save, text_config, tokenizer, vision_config

IMAGE_TOKENS = 4
ROLES = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
NEWLINES = ["\n" * number for number in range(1, 5)]


def make(directory: Path) -> None:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    processor = _processor()
    token_id = processor.tokenizer.convert_tokens_to_ids
    config = Gemma3Config(
        text_config=text_config(processor.tokenizer, head_dim=32, sliding_window=512, tie_word_embeddings=False),
        vision_config=vision_config(),
        mm_tokens_per_image=IMAGE_TOKENS,
        boi_token_index=token_id("<start_of_image>"),
        eoi_token_index=token_id("<end_of_image>"),
        image_token_index=token_id("<image_soft_token>"),
        tie_word_embeddings=False,
    )
    names = {"vision_tower.": "vision_tower.vision_model."}
    save(Gemma3ForConditionalGeneration, config, processor, directory, names)


def _processor() -> Any:
    from transformers import Gemma3ImageProcessor, Gemma3Processor

    return Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size={"height": TILE, "width": TILE}),
        tokenizer=tokenizer([*ROLES.values(), *NEWLINES], extra_special_tokens=ROLES),
        image_seq_length=IMAGE_TOKENS,
        chat_template=chat_template("<start_of_image>"),
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]))
