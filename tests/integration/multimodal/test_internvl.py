"""InternVL 3, with and without its encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.multimodal.multimodal_tests import MARKS, MultimodalTests

pytestmark = MARKS


@pytest.fixture(scope="module")
def model(tiny_internvl: Path) -> Path:
    return tiny_internvl


class TestInternVL(MultimodalTests):
    pass
