"""Makes a guidance-distilled FLUX.1 of two layers with random weights, which are the same on every machine.

python -m tests.models.tiny_flux DIRECTORY
"""

import sys
from pathlib import Path

from tests.models.tiny_clip_t5 import CLIP_WIDTH, T5_WIDTH, clip, randomised, t5, tokenizer, vae


def make(directory: Path) -> None:
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import CLIPTextModel

    torch.manual_seed(0)
    short, long = tokenizer(77), tokenizer(512)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=T5_WIDTH,
        pooled_projection_dim=CLIP_WIDTH,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )
    # The steps depend on the size of the image, which is the setting of FLUX.1-dev.
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, shift=3.0)
    FluxPipeline(
        transformer=randomised(transformer, 0.1),
        scheduler=scheduler,
        vae=vae(),
        text_encoder=clip(CLIPTextModel, short),
        tokenizer=short,
        text_encoder_2=t5(long),
        tokenizer_2=long,
    ).save_pretrained(directory)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
