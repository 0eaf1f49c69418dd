"""Qwen2.5-VL in every role."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.multimodal.roles import ROLES, Roles

pytestmark = ROLES


@pytest.fixture(scope="module")
def model(tiny_qwen25vl: Path) -> Path:
    return tiny_qwen25vl


class TestQwen25VL(Roles):
    pass
