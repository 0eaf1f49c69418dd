"""The device of a step, the dimensions of its models, and its report."""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.report import Report

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True)
class Check:
    """One run of a step."""

    device: str
    """ "cuda" or "cpu"."""
    is_tiny: bool
    """Whether models and tensors have tiny dimensions."""
    report: Report

    def config(self, model: str) -> dict[str, Any]:
        """Returns the configuration of a model, in its real or in tiny dimensions."""
        directory = CONFIGS / ("tiny" if self.is_tiny else "full")
        config: dict[str, Any] = json.loads((directory / f"{model}.json").read_text())
        return config

    def reset_peak_memory(self) -> None:
        """Starts the measurement of `peak_gib`. On a CPU, it always starts with the process."""
        if self.device == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()

    @property
    def peak_gib(self) -> float:
        """The peak of the allocated memory of the GPU, or of the memory of the process on a CPU."""
        if self.device == "cuda":
            import torch

            return float(torch.cuda.max_memory_allocated()) / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
