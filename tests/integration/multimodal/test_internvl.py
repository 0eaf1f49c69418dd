"""InternVL 3 in every role."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.multimodal.role_tests import ROLES, RoleTests

pytestmark = ROLES


@pytest.fixture(scope="module")
def model(tiny_internvl: Path) -> Path:
    return tiny_internvl


class TestInternVL(RoleTests):
    pass
