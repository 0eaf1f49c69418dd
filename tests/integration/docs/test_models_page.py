"""docs/reference/models.md, and the tests that `cornserve models` names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve_tasklib.model_catalog import EXACT_IN_CI, EXACT_IN_FAMILIES
from tests.integration.docs import models_reference
from tests.models.tiny_families import FAMILIES, tiny_model, whole_model

SINGLE = ("llama", "bert", "reranker", "whisper", "vits", "flux", "sd3", "qwenimage", "qwenimageedit", "qwen2audio")
"""Models whose tests run in CI, besides those with encoders of images."""

OTHER_NAME = "Qwen2_5OmniModel"
"""The name of `Qwen2_5OmniForConditionalGeneration` in published models. vLLM has one class for both."""


def test_the_page_has_the_known_models() -> None:
    assert models_reference.committed().strip() == models_reference.generated().strip(), (
        "docs/reference/models.md is outdated: run `python -m tests.integration.docs.models_reference`"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tested_architectures_are_those_of_the_tiny_models() -> None:
    kinds = {kind: whole_model(kind, ".") for kind in ("whole", "image", "speech", "pooling")}
    by_hand = {name for directory in kinds.values() for name in _architectures(*directory.iterdir())}
    in_ci = _architectures(*(tiny_model(name) for name in SINGLE), *(family.path for family in FAMILIES))

    whole_in_ci = [kinds["whole"] / "llava_next", kinds["whole"] / "paligemma", kinds["speech"] / "qwen3_asr"]

    assert {*in_ci, *_architectures(*whole_in_ci), OTHER_NAME} == EXACT_IN_CI
    assert by_hand - EXACT_IN_CI == EXACT_IN_FAMILIES


def _architectures(*models: Path) -> Iterator[str]:
    for model in models:
        if (model / "model_index.json").exists():
            yield json.loads((model / "model_index.json").read_text())["_class_name"]
        else:
            yield from json.loads((model / "config.json").read_text())["architectures"]
