"""Makes a Stable Diffusion 3 of two layers with random weights, which are the same on every machine.

python -m tests.models.tiny_sd3 DIRECTORY
"""

import sys
from pathlib import Path

from tests.models.tiny_clip_t5 import CLIP_WIDTH, T5_WIDTH, clip, randomised, t5, tokenizer, vae


def make(directory: Path) -> None:
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import CLIPTextModelWithProjection

    torch.manual_seed(0)
    short, long = tokenizer(77), tokenizer(256)
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=T5_WIDTH,
        caption_projection_dim=32,
        pooled_projection_dim=2 * CLIP_WIDTH,
        out_channels=4,
        pos_embed_max_size=64,
    )
    StableDiffusion3Pipeline(
        transformer=randomised(transformer, 0.1),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae(),
        text_encoder=clip(CLIPTextModelWithProjection, short),
        tokenizer=short,
        text_encoder_2=clip(CLIPTextModelWithProjection, short),
        tokenizer_2=short,
        text_encoder_3=t5(long),
        tokenizer_3=long,
    ).save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
