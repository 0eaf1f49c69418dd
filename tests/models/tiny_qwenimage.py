"""Makes a Qwen-Image of two layers with random weights, which are the same on every machine. Each byte is a token.

python -m tests.models.tiny_qwenimage DIRECTORY
"""

import sys
from pathlib import Path
from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer

SPECIAL_TOKENS = [
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]

WIDTH = 128
"""The size of the text encoder's output."""


def make(directory: Path) -> None:
    from diffusers import QwenImagePipeline

    QwenImagePipeline(**components()).save_pretrained(directory)


def components() -> dict[str, Any]:
    """Returns the components of a `QwenImagePipeline` by their names."""
    import torch
    from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageTransformer2DModel
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIAL_TOKENS), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    torch.manual_seed(0)
    transformer = QwenImageTransformer2DModel(
        patch_size=2,
        in_channels=64,
        out_channels=16,
        num_layers=2,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(8, 12, 12),
    )
    _randomise(transformer, 0.05)
    vae = AutoencoderKLQwenImage(
        base_dim=16,
        z_dim=16,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )
    # The steps depend on the size of the image, which is the setting of Qwen-Image.
    scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True,
        base_shift=0.5,
        max_shift=0.9,
        base_image_seq_len=256,
        max_image_seq_len=8192,
        shift=1.0,
        shift_terminal=0.02,
        time_shift_type="exponential",
    )
    return {
        "scheduler": scheduler,
        "vae": vae.eval(),
        "text_encoder": _text_encoder(tokenizer),
        "tokenizer": tokenizer,
        "transformer": transformer.eval(),
    }


def _text_encoder(tokenizer: Any) -> Any:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    token_id = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
            "bos_token_id": None,
            "eos_token_id": token_id("<|im_end|>"),
            "pad_token_id": token_id("<|endoftext|>"),
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "fullatt_block_indexes": [1],
        },
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )
    model = Qwen2_5_VLForConditionalGeneration(config)
    _randomise(model, 0.08)
    return model.eval()


def _randomise(model: Any, deviation: float) -> None:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, deviation)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
