"""Makes models of two layers with random weights that read images or videos, of further architectures.

python -m tests.models.tiny_image_families DIRECTORY: a directory for each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.models.tiny_family import PATCH, TILE, chat_template, save, text_config, tokenizer, vision_config

ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3], "partial_rotary_factor": 0.5}

_SIGLIP = {"vision_tower.": "vision_tower.vision_model."}
"""The names of the tensors of a SigLIP tower in checkpoints."""


def idefics3(directory: Path) -> None:
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessor,
        Idefics3Processor,
    )

    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    words = tokenizer(["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *tiles])
    processor = Idefics3Processor(
        Idefics3ImageProcessor(size={"longest_edge": 2 * TILE}, max_image_size={"longest_edge": TILE}),
        words,
        image_seq_len=(TILE // PATCH // 2) ** 2,
        chat_template=chat_template("<image>"),
    )
    config = Idefics3Config(
        text_config=text_config(words, model_type="llama"),
        vision_config=vision_config(),
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=words.pad_token_id,
    )
    save(Idefics3ForConditionalGeneration, config, processor, directory)


def cohere2_vision(directory: Path) -> None:
    from transformers import (
        Cohere2VisionConfig,
        Cohere2VisionForConditionalGeneration,
        Cohere2VisionImageProcessor,
        Cohere2VisionProcessor,
    )

    roles = {
        "boi_token": "<|START_OF_IMG|>",
        "eoi_token": "<|END_OF_IMG|>",
        "image_token": "<|IMG_PATCH|>",
        "img_line_break_token": "<|IMG_LINE_BREAK|>",
    }
    words = tokenizer([*roles.values()], extra_special_tokens=roles)
    processor = Cohere2VisionProcessor(
        image_processor=Cohere2VisionImageProcessor(
            size={"height": TILE, "width": TILE}, max_patches=4, patch_size=TILE // PATCH // 2
        ),
        tokenizer=words,
        chat_template=chat_template("<|IMG_PATCH|>"),
    )
    config = Cohere2VisionConfig(
        text_config=text_config(words, model_type="cohere2", layer_types=["sliding_attention", "full_attention"]),
        vision_config=vision_config(model_type="siglip_vision_model", vision_use_head=False),
        downsample_factor=2,
        image_token_id=words.convert_tokens_to_ids("<|IMG_PATCH|>"),
        alignment_intermediate_size=128,
    )
    save(Cohere2VisionForConditionalGeneration, config, processor, directory, _SIGLIP)


def glm_ocr(directory: Path) -> None:
    from transformers import (
        Glm4vImageProcessor,
        Glm4vProcessor,
        Glm4vVideoProcessor,
        GlmOcrConfig,
        GlmOcrForConditionalGeneration,
    )

    kinds = ("image", "video")
    marks = {kind: (f"<|begin_of_{kind}|>", f"<|{kind}|>", f"<|end_of_{kind}|>") for kind in kinds}
    words = tokenizer(["[gMASK]", "<sop>", *marks["image"], *marks["video"]])
    size = {"shortest_edge": TILE * TILE, "longest_edge": 280 * 280}
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=words,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=chat_template("".join(marks["image"]), video="".join(marks["video"])),
    )
    ids = {kind: words.convert_tokens_to_ids(list(marks[kind])) for kind in kinds}
    config = GlmOcrConfig(
        text_config=text_config(words, head_dim=32, rope_parameters=ROPE),
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 128,
            "image_size": 112,
            "patch_size": PATCH,
        },
        **{f"{kind}_start_token_id": ids[kind][0] for kind in kinds},
        **{f"{kind}_token_id": ids[kind][1] for kind in kinds},
        **{f"{kind}_end_token_id": ids[kind][2] for kind in kinds},
        tie_word_embeddings=False,
    )
    save(GlmOcrForConditionalGeneration, config, processor, directory)


def exaone4_5(directory: Path) -> None:
    from transformers import (
        Exaone4_5_Config,
        Exaone4_5_ForConditionalGeneration,
        Exaone4_5_Processor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    words = tokenizer(["<vision>", "</vision>", "<|image_pad|>", "<|video_pad|>"])
    size = {"shortest_edge": TILE * TILE, "longest_edge": 280 * 280}
    processor = Exaone4_5_Processor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=words,
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=chat_template("<vision><|image_pad|></vision>", video="<vision><|video_pad|></vision>"),
    )
    config = Exaone4_5_Config(
        text_config=text_config(
            words,
            model_type="exaone4",
            head_dim=32,
            sliding_window=None,
            layer_types=["full_attention"] * 2,
            architectures=["Exaone4ForCausalLM"],
        ),
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "num_key_value_heads": 2,
            "out_hidden_size": 128,
            "fullatt_block_indexes": [1],
        },
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
    )
    save(Exaone4_5_ForConditionalGeneration, config, processor, directory)


def aria(directory: Path) -> None:
    from transformers import AriaConfig, AriaForConditionalGeneration, AriaImageProcessor, AriaProcessor

    words = tokenizer(["<|img|>"], extra_special_tokens={"image_token": "<|img|>"})
    processor = AriaProcessor(
        image_processor=AriaImageProcessor(),
        tokenizer=words,
        chat_template=chat_template("<|img|>"),
        size_conversion={490: 8, 980: 16},
    )
    config = AriaConfig(
        text_config=text_config(
            words,
            model_type="aria_text",
            moe_num_experts=4,
            moe_topk=2,
            moe_num_shared_experts=1,
            intermediate_size=64,
        ),
        vision_config=vision_config(image_size=980),
        projector_patch_to_query_dict={35 * 35: 8, 70 * 70: 16},
        image_token_index=words.convert_tokens_to_ids("<|img|>"),
    )
    save(AriaForConditionalGeneration, config, processor, directory)


MODELS: tuple[Callable[[Path], None], ...] = (
    *(idefics3, cohere2_vision),
    *(glm_ocr, exaone4_5, aria),
)

if __name__ == "__main__":
    for make in MODELS:
        make(Path(sys.argv[1]) / make.__name__)
