"""The device of a step, the dimensions of its models, and its report."""

from __future__ import annotations

import gc
import json
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_check.report import Report

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True, slots=True)
class Check:
    """One run of a step."""

    device: str
    """ "cuda" or "cpu"."""
    report: Report
    shared_memory: Path
    """A directory in memory, which is removed after the step."""

    @property
    def is_tiny(self) -> bool:
        """Whether models and tensors have tiny dimensions."""
        return self.device == "cpu"

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return torch.float32 if self.device == "cpu" else torch.bfloat16

    def config(self, model: str) -> dict[str, Any]:
        """Returns the configuration of a model, in its real or in tiny dimensions."""
        directory = CONFIGS / ("tiny" if self.is_tiny else "full")
        config: dict[str, Any] = json.loads((directory / f"{model}.json").read_text())
        return config

    def free_memory(self) -> None:
        """Frees the memory of deleted models on the GPU."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def reset_peak_memory(self) -> None:
        """Starts the measurement of `peak_gib`. On a CPU, it always starts with the process."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    @property
    def peak_gib(self) -> float:
        """The peak of the allocated memory of the GPU, or of the memory of the process on a CPU."""
        if self.device == "cuda":
            return float(torch.cuda.max_memory_allocated()) / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
