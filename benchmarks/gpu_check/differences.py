"""Compares tensors."""

from __future__ import annotations

import torch


def relative_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns the norm of the difference, relative to the norm of the expected tensor."""
    expected = expected.float()
    return float((found.float().to(expected.device) - expected).norm() / expected.norm())
