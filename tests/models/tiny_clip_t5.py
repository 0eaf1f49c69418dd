"""Text encoders and VAEs of tiny image models with random weights. Each byte of a text is a token."""

from __future__ import annotations

from typing import Any

from tests.models.byte_tokenizer import byte_tokenizer

CLIP_WIDTH = 32
T5_WIDTH = 64
"""The width of the embeddings of T5: at least that of two CLIP encoders together."""


def tokenizer(max_length: int) -> Any:
    """Returns a tokenizer that ends each text with an end token, as those of CLIP and T5 do."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokens = byte_tokenizer(["<pad>", "<end>"])
    end = tokens.token_to_id("<end>")
    tokens.post_processor = TemplateProcessing(single="$A <end>", special_tokens=[("<end>", end)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<end>", pad_token="<pad>", model_max_length=max_length
    )


def clip(model_class: Any, tokenizer: Any) -> Any:
    from transformers import CLIPTextConfig

    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=CLIP_WIDTH,
        intermediate_size=64,
        projection_dim=CLIP_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return randomised(model_class(config), 0.2)


def t5(tokenizer: Any) -> Any:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=T5_WIDTH,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return randomised(T5EncoderModel(config), 0.2)


def vae() -> Any:
    """Returns a VAE whose latents have 1/8 of the width and height of an image."""
    from diffusers import AutoencoderKL

    return randomised(
        AutoencoderKL(
            block_out_channels=(8, 8, 8, 8),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=1,
            latent_channels=4,
            norm_num_groups=4,
            scaling_factor=1.5,
            shift_factor=0.06,
            use_quant_conv=False,
            use_post_quant_conv=False,
        ),
        0.2,
    )


def randomised(model: Any, deviation: float) -> Any:
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, deviation)
    return model.eval()
