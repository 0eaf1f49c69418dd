"""Weights that make something of their input."""

from __future__ import annotations

from typing import Any


def randomise(model: Any) -> None:
    """Draws them wide enough for every image and every token to matter: answers differ with their prompts."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.1)
        elif "lambda" in name:  # What InternVL multiplies the output of each layer with.
            parameter.data.fill_(1)
        elif name.endswith("bias"):
            parameter.data.normal_(0, 0.02)
