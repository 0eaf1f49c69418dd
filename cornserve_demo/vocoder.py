"""Trains the vocoder of the speaking demo model: a beep or a pause for each frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import mse_loss

from cornserve_demo.omni_config import CODE_GROUPS
from cornserve_demo.optimization import Optimization
from cornserve_demo.spelling import CODES, SILENCE, make_frames

BATCH = 8
FRAMES = 6
_PAUSES = 0.35
"""The share of frames that are pauses, in addition to the random ones."""

Progress = Callable[[str], None]


def train(vocoder: Any, steps: int, progress: Progress) -> None:
    """Trains a `Qwen3OmniMoeCode2Wav`. The loss is relative to the square of the samples."""
    for _, block in vocoder.upsample:
        block.gamma.data.fill_(0.1)  # The weight of each block, which starts at almost zero.
    frames = torch.from_numpy(make_frames())
    scale = 1 / frames.square().mean()
    optimization = Optimization(vocoder.train(), steps, rate=3e-3, peak=3e-3)
    for step in range(1, steps + 1):
        codes = torch.randint(CODES, (BATCH, FRAMES)).masked_fill(torch.rand(BATCH, FRAMES) < _PAUSES, SILENCE)
        samples = vocoder(codes[:, None].expand(-1, CODE_GROUPS, -1))[:, 0]
        loss = scale * mse_loss(samples, frames[codes].flatten(1)[:, : samples.shape[1]])
        optimization.minimize(loss)
        if optimization.reports(step):
            progress(f"vocoder: step {step} of {steps}, loss {loss.item():.4f}")
