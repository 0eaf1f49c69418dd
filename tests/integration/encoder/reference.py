"""Embeddings computed by transformers' complete model and processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import PIL.Image

TOLERANCE = {"rtol": 0, "atol": 2e-5}
"""Values are up to ten; the order of additions depends on the machine and the batch."""

_ARGUMENTS = ("pixel_values", "image_grid_thw", "image_sizes")


def load_transformers_model(model: Path) -> Any:
    """Returns transformers' model in float32: of Omni models, the thinker."""
    import torch
    from transformers import AutoConfig, AutoModelForMultimodalLM

    config = AutoConfig.from_pretrained(model)
    config = getattr(config, "thinker_config", config)
    return AutoModelForMultimodalLM.from_pretrained(model, config=config, dtype=torch.float32).eval()


def transformers_rows(model: Path, pictures: Sequence[PIL.Image.Image]) -> list[Any]:
    """Returns the rows of each picture."""
    import torch
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    transformers_model = load_transformers_model(model)
    rows = []
    for picture in pictures:
        inputs = processor(text=[processor.image_token], images=[picture], return_tensors="pt")
        arguments = {name: inputs[name] for name in _ARGUMENTS if name in inputs}
        with torch.no_grad():
            output = transformers_model.get_image_features(**arguments)
        levels = [output.pooler_output, *getattr(output, "deepstack_features", [])]
        encoded = torch.cat([torch.cat([part.flatten(0, -2) for part in level]) for level in levels], dim=-1)
        image_token = transformers_model.config.image_token_id
        assert len(encoded) == (inputs["input_ids"] == image_token).sum()
        rows.append(encoded)
    return rows
