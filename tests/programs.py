"""Programs that tests need, and that a laptop may lack."""

from __future__ import annotations

import os
import shutil

import pytest


def require_program(name: str) -> str:
    """Returns the path of a program. Without it, skips the test, and fails it in CI."""
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not installed: apt-get install {name}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)  # a laptop may lack it
