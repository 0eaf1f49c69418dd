"""Makes models of two layers with random weights, of further architectures.

python -m tests.models.tiny_whole_families DIRECTORY: a directory for each
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.models.tiny_family import PATCH, TILE, chat_template, save, text_config, tokenizer, vision_config
from tests.models.tiny_qwen3vl import qwen3vl_processor

GRID = [[TILE, 2 * TILE], [2 * TILE, TILE], [2 * TILE, 2 * TILE]]
"""The sizes of images that are divided into tiles."""


def llava_next(directory: Path) -> None:
    from transformers import (
        LlavaNextConfig,
        LlavaNextForConditionalGeneration,
        LlavaNextImageProcessor,
        LlavaNextProcessor,
    )

    processor = LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": TILE}, crop_size={"height": TILE, "width": TILE}, image_grid_pinpoints=GRID
        ),
        tokenizer=tokenizer(["<image>"]),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat_template("<image>\n"),
    )
    config = LlavaNextConfig(
        text_config=text_config(processor.tokenizer, model_type="llama"),
        vision_config=vision_config(model_type="clip_vision_model", num_hidden_layers=3, projection_dim=32),
        image_token_index=processor.image_token_id,
        image_grid_pinpoints=GRID,
        image_seq_length=(TILE // PATCH) ** 2,
    )
    names = {"vision_tower.": "vision_tower.vision_model."}
    save(LlavaNextForConditionalGeneration, config, processor, directory, names)


def paligemma(directory: Path) -> None:
    from transformers import (
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessor,
    )

    image_processor = SiglipImageProcessor(size={"height": TILE, "width": TILE})
    image_processor.image_seq_length = (TILE // PATCH) ** 2
    words = tokenizer(["<image>", "\n"], bos_token="<|endoftext|>")
    # The processor writes the placeholders of images before the text.
    processor = PaliGemmaProcessor(image_processor=image_processor, tokenizer=words, chat_template=chat_template(""))
    config = PaliGemmaConfig(
        text_config=text_config(words, model_type="gemma", head_dim=32),
        vision_config=vision_config(model_type="siglip_vision_model", projection_dim=128, vision_use_head=False),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=128,
        hidden_size=128,
        tie_word_embeddings=False,
    )
    names = {"vision_tower.": "vision_tower.vision_model."}
    save(PaliGemmaForConditionalGeneration, config, processor, directory, names)


def audio_flamingo3(directory: Path) -> None:
    from transformers import (
        AudioFlamingo3Config,
        AudioFlamingo3ForConditionalGeneration,
        AudioFlamingo3Processor,
        WhisperFeatureExtractor,
    )

    words = tokenizer(["<sound>"])
    processor = AudioFlamingo3Processor(
        feature_extractor=WhisperFeatureExtractor(feature_size=128),
        tokenizer=words,
        chat_template=chat_template("", audio="<sound>"),
    )
    config = AudioFlamingo3Config(
        audio_config={
            "num_mel_bins": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 128,
            "hidden_size": 64,
            "max_source_positions": 1500,
        },
        text_config=text_config(words, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
        audio_token_id=words.convert_tokens_to_ids("<sound>"),
        tie_word_embeddings=False,
    )
    names = {"language_model.model.model.": "language_model.model."}
    save(AudioFlamingo3ForConditionalGeneration, config, processor, directory, names)


def llama4(directory: Path) -> None:
    from transformers import Llama4Config, Llama4ForConditionalGeneration, Llama4ImageProcessor, Llama4Processor

    roles = {
        "start_of_image_token": "<|image_start|>",
        "end_of_image_token": "<|image_end|>",
        "image_token": "<|image|>",
        "fake_image_token": "<|image|>",
        "patch_token": "<|patch|>",
        "tile_x_separator_token": "<|tile_x_separator|>",
        "tile_y_separator_token": "<|tile_y_separator|>",
    }
    words = tokenizer(list(dict.fromkeys(roles.values())), bos_token="<|endoftext|>")
    processor = Llama4Processor(
        image_processor=Llama4ImageProcessor(
            size={"height": TILE, "width": TILE}, max_patches=4, resize_to_max_canvas=False
        ),
        tokenizer=words,
        patch_size=PATCH,
        pixel_shuffle_ratio=0.5,
        chat_template=chat_template("<|image|>"),
        **roles,
    )
    token_id = words.convert_tokens_to_ids
    config = Llama4Config(
        text_config=text_config(
            words,
            head_dim=32,
            num_local_experts=2,
            num_experts_per_tok=1,
            intermediate_size_mlp=256,
            interleave_moe_layer_step=2,
            no_rope_layers=[1, 0],
            attention_chunk_size=8192,
        ),
        vision_config=vision_config(
            intermediate_size=256,
            pixel_shuffle_ratio=0.5,
            projector_input_dim=96,
            projector_output_dim=96,
            vision_output_dim=96,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        ),
        boi_token_index=token_id("<|image_start|>"),
        eoi_token_index=token_id("<|image_end|>"),
        image_token_index=token_id("<|patch|>"),
        tie_word_embeddings=False,
    )
    save(Llama4ForConditionalGeneration, config, processor, directory)


def qwen3_vl_moe(directory: Path) -> None:
    from safetensors.torch import load_file, save_file
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    processor = qwen3vl_processor()
    words = processor.tokenizer
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    token_id = words.convert_tokens_to_ids
    config = Qwen3VLMoeConfig(
        text_config=text_config(
            words,
            head_dim=32,
            rope_parameters=rope,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=64,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            norm_topk_prob=True,
        ),
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": 128,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    save(Qwen3VLMoeForConditionalGeneration, config, processor, directory)
    # In published checkpoints, the matrices of experts are transposed.
    file = directory / "model.safetensors"
    tensors = load_file(file)
    for name in tensors:
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, file, {"format": "pt"})


def _save_glm(model_type: Any, config_type: Any, directory: Path, **text: Any) -> None:
    from transformers import Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    kinds = ("image", "video")
    marks = {kind: (f"<|begin_of_{kind}|>", f"<|{kind}|>", f"<|end_of_{kind}|>") for kind in kinds}
    words = tokenizer(["[gMASK]", "<sop>", *marks["image"], *marks["video"]])
    size = {"shortest_edge": 56 * 56, "longest_edge": 280 * 280}
    processor = Glm4vProcessor(
        image_processor=Glm4vImageProcessor(size=size),
        tokenizer=words,
        video_processor=Glm4vVideoProcessor(size=size),
        chat_template=chat_template("".join(marks["image"]), video="".join(marks["video"])),
    )
    ids = {kind: words.convert_tokens_to_ids(list(marks[kind])) for kind in kinds}
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "partial_rotary_factor": 0.5,
    }
    config = config_type(
        text_config=text_config(words, head_dim=32, rope_parameters=rope, **text),
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
    save(model_type, config, processor, directory)


def glm4v(directory: Path) -> None:
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration

    _save_glm(Glm4vForConditionalGeneration, Glm4vConfig, directory)


def glm4v_moe(directory: Path) -> None:
    from transformers import Glm4vMoeConfig, Glm4vMoeForConditionalGeneration

    _save_glm(
        *(Glm4vMoeForConditionalGeneration, Glm4vMoeConfig, directory),
        moe_intermediate_size=64,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        first_k_dense_replace=1,
        use_qk_norm=False,
        n_group=1,
        topk_group=1,
    )


MODELS: tuple[Callable[[Path], None], ...] = (
    *(llava_next, paligemma, audio_flamingo3, llama4),
    *(qwen3_vl_moe, glm4v, glm4v_moe),
)

if __name__ == "__main__":
    for make in MODELS:
        make(Path(sys.argv[1]) / make.__name__)
