"""The conditions of measurements."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cornserve.profiler.device import Device
from cornserve.profiler.errors import ProfilingError
from cornserve.task import ExecutorSpec


def test_a_profile_is_that_of_a_model_with_the_same_contents(tmp_path: Path) -> None:
    model, copy = tmp_path / "model", tmp_path / "copy"
    weights = model / "transformer" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    shutil.copytree(model, copy)
    os.utime(copy / "transformer" / "model.safetensors", (1, 1))
    device = Device("cpu", "4 cores", "6.1")

    def conditions(directory: Path) -> str:
        return device.conditions(ExecutorSpec(executor="llm", config={"model_id": str(directory)})).model

    before, time = conditions(model), weights.stat().st_mtime
    assert before == conditions(copy) != ""
    weights.write_bytes(b"changed")
    os.utime(weights, (time, time))
    assert conditions(model) not in (before, "")


def test_a_model_without_files_is_not_measured(tmp_path: Path) -> None:
    device = Device("cpu", "4 cores", "6.1")

    with pytest.raises(ProfilingError, match="has no readable files"):
        device.conditions(ExecutorSpec(executor="llm", config={"model_id": str(tmp_path)}))
