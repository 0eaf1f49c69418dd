"""Random weights whose outputs depend on their inputs."""

from __future__ import annotations

from typing import Any


def randomise(model: Any) -> None:
    """Draws weights from a wide distribution, so that every image and every token changes the response."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.1)
        elif "lambda" in name:  # The scale of a layer's output in InternVL.
            parameter.data.fill_(1)
        elif name.endswith("bias"):
            parameter.data.normal_(0, 0.02)
