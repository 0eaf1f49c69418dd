"""The libraries that engines import."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINES = (
    "cornserve_executors.image_generator.engine",
    "cornserve_executors.image_generator.pipeline_engine",
    "cornserve_executors.talker.engine",
    "cornserve_executors.talker.vocoder_engine",
    "cornserve_executors.tensor_copies",
    "cornserve.transport",
)
ABSENT = ("av", "soundfile", "torchaudio", "torchcodec", "torchvision", "vllm")

IMPORTS_WITHOUT_LIBRARIES = f"""
import sys
from importlib import import_module

sys.modules.update(dict.fromkeys({ABSENT!r}))
for name in {ENGINES!r}:
    import_module(name)
"""


@pytest.mark.slow
def test_engines_on_transformers_and_diffusers_import_no_codecs_and_no_vllm() -> None:
    command = [sys.executable, "-c", IMPORTS_WITHOUT_LIBRARIES]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
