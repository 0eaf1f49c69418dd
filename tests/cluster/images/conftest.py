from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.images.container import UnpackedImage

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> UnpackedImage:
    """The image of gateway, controller and command line."""
    return _build("control", tmp_path_factory.mktemp("control"))


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> UnpackedImage:
    """The image that adds the unit tasks of `examples/echo` to `control`."""
    return _build("echo", tmp_path_factory.mktemp("echo"))


def _build(name: str, directory: Path) -> UnpackedImage:
    if os.geteuid() != 0 or not shutil.which("runc"):
        pytest.skip("containers need root and runc")
    built = subprocess.run([ROOT / "kubernetes/images/build", name], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    return UnpackedImage(Path(built.stdout.strip()), directory)
