"""Qwen2.5-VL, with and without its encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.multimodal.multimodal_tests import MARKS, MultimodalTests

pytestmark = MARKS


@pytest.fixture(scope="module")
def model(tiny_qwen25vl: Path) -> Path:
    return tiny_qwen25vl


class TestQwen25VL(MultimodalTests):
    pass
