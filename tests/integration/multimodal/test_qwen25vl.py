"""Qwen2.5-VL in every role."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.multimodal.role_tests import ROLES, RoleTests

pytestmark = ROLES


@pytest.fixture(scope="module")
def model(tiny_qwen25vl: Path) -> Path:
    return tiny_qwen25vl


class TestQwen25VL(RoleTests):
    pass
