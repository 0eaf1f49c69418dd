"""The training loop's optimizer, which all models of the demo share."""

from __future__ import annotations

import torch

REPORT_STEPS = 100
"""The steps between two reports of the progress."""


class Optimization:
    """AdamW with one cycle of the learning rate and clipped gradients.

    Args:
        steps: the number of training steps.
        rate: the learning rate of AdamW, which the cycle replaces.
        peak: the highest learning rate of the cycle.
    """

    def __init__(
        self, model: torch.nn.Module, steps: int, *, rate: float, peak: float, weight_decay: float = 0.0
    ) -> None:
        self._model = model
        self._steps = steps
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=weight_decay)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, max_lr=peak, total_steps=steps, pct_start=0.1
        )

    def minimize(self, loss: torch.Tensor) -> None:
        """Changes the weights in a step against the gradient of the loss."""
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()

    def reports(self, step: int) -> bool:
        """Returns whether the progress is reported after this step."""
        return step % REPORT_STEPS == 0 or step == self._steps
